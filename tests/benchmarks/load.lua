-- A fixed amount of work for wrk: each line of a file is one request, `path<TAB>body`.
-- wrk has no end but a duration, so this ends it when the work is done and keeps the time itself.
-- Arguments after `--`: the file, how many requests shall be answered, the number of connections.

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long seconds; long nanoseconds; } moment;
  int clock_gettime(int clock, moment *now);
  int getpid(void);
  int kill(int process, int signal);
]]
local MONOTONIC, SIGINT = 1, 2

local threads = {}
local requests, sent, wanted, in_flight, began = {}, 0, 0, 0, 0
elapsed = 0

local function now()
  local moment = ffi.new("moment[1]")
  ffi.C.clock_gettime(MONOTONIC, moment)
  return tonumber(moment[0].seconds) + tonumber(moment[0].nanoseconds) / 1e9
end

function setup(thread)
  table.insert(threads, thread)
end

function init(arguments)
  wrk.headers["Content-Type"] = "application/json"
  for line in io.lines(arguments[1]) do
    local path, body = line:match("^(%S+)\t(.*)$")
    table.insert(requests, wrk.format("POST", path, nil, body))
  end
  wanted, in_flight = tonumber(arguments[2]), tonumber(arguments[3])
  sent = -1  -- wrk asks once before it begins, to see what a request looks like
end

-- With n connections open, the call number n + k is made when k requests have been answered.
function request()
  sent = sent + 1
  if sent == 1 then began = now() end
  if sent == wanted + in_flight and elapsed == 0 then
    elapsed = now() - began
    wrk.thread:stop()
    ffi.C.kill(ffi.C.getpid(), SIGINT)
  end
  return requests[math.max(sent, 1)] or requests[#requests]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"elapsed": %.6f, "duration": %.0f, "answered": %d, "failed": %d, "latencies": [',
    threads[1]:get("elapsed"), summary.duration, summary.requests,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
  for index = 1, #latency do
    local microseconds, count = latency(index)
    io.write(string.format("%s[%.0f, %.0f]", index > 1 and ", " or "", microseconds, count))
  end
  io.write("]}\n")
end
