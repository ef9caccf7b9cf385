"""Load over HTTP by `wrk`: a fixed list of distinct requests, closed loop, a number of connections."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("load.lua")
LONGEST_SECONDS = 600


class LoadFailed(Exception):
    """wrk is missing, or a server did not answer every request well."""


@dataclass(frozen=True, slots=True)
class Request:
    """One POST."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Requests per second from the first request to the last answer that was waited for; latencies in seconds."""

    requests_per_second: float
    median: float
    percentile_90: float
    percentile_99: float


def run_load(url: str, requests: Sequence[Request], *, connections: int) -> LoadResult:
    """Send all requests over so many connections.

    Since connections never stand still, the last `connections` requests keep the server busy and are not counted.

    Raises:
        LoadFailed: see there.
    """
    if shutil.which("wrk") is None:
        raise LoadFailed("wrk is not installed: apt-get install wrk")
    counted = len(requests) - connections
    if counted < 1:
        raise LoadFailed(f"{len(requests)} requests are too few for {connections} connections")
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(f"{request.path}\t{json.dumps(request.body)}\n" for request in requests)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{LONGEST_SECONDS}s", "--timeout", "60s", "-s", str(SCRIPT)]
        command += [url, "--", file.name, str(counted), str(connections)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS + 30, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise LoadFailed(f"wrk failed: {result.stderr.strip()[-300:] or result.stdout.strip()[-300:]}")
    return _result(json.loads(lines[0]), counted=counted, connections=connections)


def _result(answer: Mapping[str, Any], *, counted: int, connections: int) -> LoadResult:
    if answer["failed"] or not answer["elapsed"]:
        reason = f"{answer['failed']} failed" if answer["failed"] else f"not done in {LONGEST_SECONDS} s"
        raise LoadFailed(f"of {counted} requests {answer['answered']} were answered, {reason}")
    latencies = dict(answer["latencies"])
    if answer["answered"] >= connections:
        latencies = uncorrected(latencies, interval=answer["duration"] // (answer["answered"] // connections))
    total = sum(latencies.values())
    if total != answer["answered"]:
        raise LoadFailed(f"wrk's latencies are of {total} requests, but {answer['answered']} were answered")
    return LoadResult(
        requests_per_second=counted / answer["elapsed"],
        median=percentile(latencies, 50) / 1e6,
        percentile_90=percentile(latencies, 90) / 1e6,
        percentile_99=percentile(latencies, 99) / 1e6,
    )


def uncorrected(latencies: Mapping[int, int], *, interval: int) -> dict[int, int]:
    """The latencies that were measured, by microseconds, of those that wrk reports.

    wrk takes a latency of over twice the mean `interval` for a stall that kept back other requests, and adds made-up
    ones: for each latency n, n - interval, n - 2 interval, … while they are above the interval. In a closed loop over
    texts of different lengths nothing was kept back. Each addition is to a smaller latency, so they can be taken back
    from the largest down.
    """
    counts = dict(latencies)
    for latency in sorted(latencies, reverse=True):
        if latency < 2 * interval:
            break
        for added in range(latency - interval, interval, -interval):
            counts[added] -= counts[latency]
    return {latency: count for latency, count in counts.items() if count}


def percentile(counts: Mapping[int, int], percent: float) -> int:
    """The least value that at least `percent` of all do not exceed."""
    wanted = sum(counts.values()) * percent / 100
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= wanted:
            return value
    raise ValueError("counts: empty; a percentile needs at least one value")
