"""The service under the same mixed traffic for a long time, and what it holds meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import httpx

from tests.benchmarks.texts import CHECKPOINT
from tests.chaos.run import Footprint
from tests.live_server import LiveServer, live_server
from tests.soak.questions import Question, Reference, questions

CONNECTIONS = 4
WINDOWS = 10
FLAGS = ("--device", "cpu", "--dtype", "float32", "--no-access-log")

MOST_MEMORY_CHANGE = 0.02
MOST_LATENCY_DRIFT = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A tenth of the run: what was answered, how fast, and what the process held at its end."""

    requests: int
    p50_ms: float
    p99_ms: float
    footprint: Footprint


@dataclass(slots=True, kw_only=True)
class Soak:
    """What came of a run. faults: wrong answers and other statuses than 200, counted."""

    seconds: float
    windows: list[Window] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)

    @property
    def memory_change(self) -> float:
        """The difference between most and least resident memory in the second half, as a share of the median."""
        resident = [window.footprint.resident_bytes for window in self.windows[WINDOWS // 2 :]]
        return (max(resident) - min(resident)) / median(resident)

    @property
    def latency_drift(self) -> float:
        """How much longer the p99 of the last third is than that of the third before, as a share; medians of each."""
        third = WINDOWS // 3
        earlier = median(window.p99_ms for window in self.windows[-2 * third : -third])
        return median(window.p99_ms for window in self.windows[-third:]) / earlier - 1

    def misses(self) -> list[str]:
        """The promises that were not kept."""
        found = [f"{count} times: {fault}" for fault, count in self.faults.most_common()]
        late = [window.footprint for window in self.windows[WINDOWS // 2 :]]
        if self.memory_change > MOST_MEMORY_CHANGE:
            found.append(f"resident memory changes by {self.memory_change:.1%} in the second half")
        for name in ("descriptors", "threads"):
            values = {getattr(footprint, name) for footprint in late}
            if len(values) > 1:
                found.append(f"{name} in the second half: {sorted(values)}")
        if self.latency_drift > MOST_LATENCY_DRIFT:
            found.append(f"p99 grows by {self.latency_drift:.1%}")
        return found


def soak(folder: Path, *, texts: Sequence[str], seconds: float) -> Soak:
    """Run it with questions about these texts; `folder` gets the service's log."""
    asked = questions(Reference(CHECKPOINT), texts)
    with live_server(folder, "--model-id", str(CHECKPOINT), *FLAGS) as server:
        return asyncio.run(_run(server, asked, seconds=seconds))


async def _run(server: LiveServer, asked: Sequence[Question], *, seconds: float) -> Soak:
    result = Soak(seconds=seconds)
    latencies: list[float] = []
    begin = time.monotonic()
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with (
        httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(CONNECTIONS):
            group.create_task(_ask(client, asked, first=number, until=begin + seconds, result=result, ms=latencies))
        for window in range(WINDOWS):
            await asyncio.sleep(begin + seconds * (window + 1) / WINDOWS - time.monotonic())
            result.windows.append(_window(latencies, pid=server.process.pid))
            latencies.clear()
    return result


async def _ask(
    client: httpx.AsyncClient,
    asked: Sequence[Question],
    *,
    first: int,
    until: float,
    result: Soak,
    ms: list[float],
) -> None:
    number = first
    while time.monotonic() < until:
        question = asked[number % len(asked)]
        number += CONNECTIONS
        begin = time.perf_counter()
        response = await client.post(question.route, json=question.body)
        ms.append(1000 * (time.perf_counter() - begin))
        result.asked[question.route] += 1
        fault = question.fault(response.json()) if response.status_code == 200 else f"status {response.status_code}"
        if fault is not None:
            result.faults[f"{question.route}: {fault}"] += 1


def _window(ms: Sequence[float], *, pid: int) -> Window:
    return Window(
        requests=len(ms),
        p50_ms=median(ms) if ms else 0.0,
        p99_ms=quantiles(ms, n=100)[-1] if len(ms) > 1 else 0.0,
        footprint=Footprint.of(pid),
    )
