#!/usr/bin/env bash
# tests/containers/faults.sh IMAGE
#
# What is promised of a container, tried with a built image that holds the default checkpoint. Needs docker, and a
# machine with little else to do; takes about three minutes. Exit code 1 if a promise is not kept.
#
#   1. Killed by SIGKILL, the service comes back by itself and answers right.
#   2. `docker stop` with requests in the queue, an idle connection and a client that never reads: each request is
#      answered with 200 or 503, none is broken off, and the exit code is 0 well before the kill.
#   3. With one CPU, by quota or by affinity, it computes about as much as with one thread by command.
#   4. As a foreign user, on a read-only root and without network it answers as root does, and nothing is written
#      outside /tmp. A model folder that is missing is told by its path, and not looked for elsewhere.
set -uo pipefail

[[ $# -eq 1 ]] || { echo "usage: $0 IMAGE" >&2; exit 2; }
image=$1
name=bert-service-faults-$$
here=$(dirname "${BASH_SOURCE[0]}")
faults=0
hardened=(--read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges)

# shellcheck disable=SC2329  # called by the trap
clean_up() {
  docker ps -aq --filter "name=^$name" | xargs -r docker rm -f >/dev/null
  docker volume rm -f "$name" >/dev/null
}
trap clean_up EXIT

# judge WHAT COMMAND…: says whether the promise is kept, which is whether the command succeeds.
judge() {
  if "${@:2}"; then echo "ok    $1"; else echo "FAIL  $1"; faults=$((faults + 1)); fi
}

# start NAME OPTION…: a service, which answers when this returns.
start() {
  docker run -d --name "$name-$1" "${@:2}" "$image" >/dev/null && answers_right "$name-$1"
}

# answers_right CONTAINER: within two minutes each endpoint has answered right.
answers_right() {
  local end=$((SECONDS + 120))
  until docker exec -i "$1" python - <"$here/ask_each_endpoint.py" 2>/dev/null; do
    ((SECONDS < end)) || { docker logs --tail 5 "$1"; return 1; }
    sleep 0.2
  done
}

# inside CONTAINER ARGUMENT…: another container of the image, in the first one's network.
inside() {
  docker run -i --rm --network "container:$1" "${@:2}"
}

# between LOW VALUE HIGH
between() {
  awk -v low="$1" -v value="$2" -v high="$3" 'BEGIN { exit !(value != "" && low <= value && value <= high) }'
}

inspect() {
  docker inspect --format "$2" "$1"
}

echo "1. kill -9"
judge "answers right after the start" start killed "${hardened[@]}" --restart unless-stopped
# Not by `docker kill`, after which no container is restarted; and nothing inside can kill the first process.
began=$SECONDS
docker run --rm --pid host --user 0 --entrypoint python "$image" -c \
  "import os; os.kill($(inspect "$name-killed" '{{.State.Pid}}'), 9)"
judge "answers right after the kill" answers_right "$name-killed"
echo "      after $((SECONDS - began)) s"
judge "was restarted once" [ "$(inspect "$name-killed" '{{.RestartCount}}')" = 1 ]
docker rm -f "$name-killed" >/dev/null

echo "2. docker stop -t 15 with a full queue"
judge "answers right after the start" start stopped "${hardened[@]}" --env DRAIN_TIMEOUT_SECONDS=8
clients=$(mktemp)
inside "$name-stopped" --entrypoint python "$image" - <"$here/clients_at_the_end.py" >"$clients" 2>&1 &
until grep -q queued "$clients" || ! kill -0 $!; do sleep 0.1; done
began=$SECONDS
docker stop -t 15 "$name-stopped" >/dev/null
seconds=$((SECONDS - began))
judge "each request is answered, none is broken off" wait $!
sed '/^queued$/d; s/^/      /' "$clients"
rm "$clients"
judge "exit code 0" [ "$(inspect "$name-stopped" '{{.State.ExitCode}}')" = 0 ]
judge "stopped within 12 s ($seconds s)" between 0 $seconds 12
docker rm -f "$name-stopped" >/dev/null

echo "3. one CPU"
cpu_seconds() {
  docker exec "$name-$1" cat /proc/1/stat | awk '{ print ($14 + $15) / 100 }'
}
# rate NAME: texts that a second of CPU time has answered. Unlike their number by the clock, it does not hang on what
# else the machine does; threads that wait for each other, or are held up by the quota, do show in it.
rate() {
  local before texts
  before=$(cpu_seconds "$1")
  texts=$(inside "$name-$1" "$image" bench --duration-seconds 8 --warm-up-seconds 0 --connections 4 --lengths 256 \
    --json http://127.0.0.1:8000 2>/dev/null | sed -n 's/.*"texts": *\([0-9]*\).*/\1/p')
  awk -v texts="$texts" -v before="$before" -v after="$(cpu_seconds "$1")" \
    'BEGIN { printf "%.1f", texts / (after - before) }'
}
judge "one thread by command: answers right" start explicit --cpus 1 --cpuset-cpus 0 --env OMP_NUM_THREADS=1
for limit in --cpus=1 --cpuset-cpus=0; do
  judge "$limit: answers right" start limited "$limit"
  read -r share limited explicit <<<"$(for _ in 1 2 3; do
    echo "$(rate limited) $(rate explicit)"
  done | awk '{ print $1 / $2, $0 }' | sort -n | sed -n 2p)"
  judge "$limit: $limited texts per CPU second, $explicit of one thread by command (median of 3 in turns)" \
    between 0.8 "$share" 100
  docker rm -f "$name-limited" >/dev/null
done
docker rm -f "$name-explicit" >/dev/null

echo "4. foreign user, read-only, no network"
docker volume create "$name" >/dev/null
# An empty volume takes what the image has in its place.
docker run --rm --user 0 --entrypoint true --volume "$name:/app/weights/minilm-l6-bert-en" "$image"
model=(--volume "$name:/model:ro" --env MODEL_ID=/model)
foreign=(--user 12345:0 "${hardened[@]}" --network none)
judge "answers right" start foreign "${foreign[@]}" "${model[@]}"
judge "root: answers right" start root --user 0 "${model[@]}"
embedding() {
  docker exec "$name-$1" python -c "import json, urllib.request
request = urllib.request.Request('http://127.0.0.1:8000/embed', json.dumps({'inputs': ['one', 'and another']}).encode())
request.add_header('content-type', 'application/json')
print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=8).read().decode())"
}
judge "the same answer as root's" [ "$(embedding foreign)" = "$(embedding root)" ]
for _ in {1..60}; do [[ $(inspect "$name-foreign" '{{.State.Health.Status}}') = starting ]] || break; sleep 0.5; done
judge "healthy" [ "$(inspect "$name-foreign" '{{.State.Health.Status}}')" = healthy ]
judge "nothing written outside /tmp, where root could" [ -z "$(docker diff "$name-root" | grep -Ev '^[AC] /(model$|tmp)')" ]
told=$(docker run --rm "${foreign[@]}" --env MODEL_ID=/model/none "$image" 2>&1)
code=$?
judge "a missing folder ends it with a fault (exit code $code)" [ $code -ne 0 ]
judge "is told by its path" grep -q '/model/none: ' <<<"$told"
judge "is not looked for elsewhere" grep -q 'no such folder' <<<"$told"

echo "$faults promises not kept"
((faults == 0))
