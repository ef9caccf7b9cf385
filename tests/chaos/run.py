"""A run: the service as a process, all clients at once, and what is left of them afterwards."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.chaos.clients import (
    CLIENTS,
    LARGEST_LIST,
    PATIENCE_SECONDS,
    PAYLOAD_LIMIT,
    REQUEST_TIMEOUT_SECONDS,
    Chaos,
    asks_until_the_end,
    metrics,
    whole_queue_is_free,
)
from tests.chaos.server import UNFINISHED_REQUEST_SECONDS
from tests.chaos.wire import connected
from tests.service.server_process import server

PASS_SECONDS = 0.004
SHUTDOWN_DELAY_SECONDS = 0.5
LAST_CLIENTS = 20
FLAGS = (
    "--no-access-log",
    "--max-concurrent-requests",
    str(LARGEST_LIST),
    "--max-client-batch-size",
    str(LARGEST_LIST),
    "--payload-limit",
    str(PAYLOAD_LIMIT),
    "--request-timeout-seconds",
    str(REQUEST_TIMEOUT_SECONDS),
    "--shutdown-delay-seconds",
    str(SHUTDOWN_DELAY_SECONDS),
    "--drain-timeout-seconds",
    "5",
)

LONGEST_LIVE_SECONDS = 1.0
MOST_GROWTH_BYTES = 40_000_000
"""From a quarter of the run on; memory that is in use at the busiest moment counts."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a process holds."""

    descriptors: int
    threads: int
    resident_bytes: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        root = Path("/proc") / str(pid)
        resident_pages = int((root / "statm").read_text().split()[1])
        return cls(
            descriptors=len(list((root / "fd").iterdir())),
            threads=len(list((root / "task").iterdir())),
            resident_bytes=resident_pages * os.sysconf("SC_PAGE_SIZE"),
        )


def run(folder: Path, *, seconds: float, seed: int) -> tuple[Chaos, dict[str, Footprint]]:
    """Chaos for so long, then quiet, then the end under load. `folder` gets the service's log."""
    log = folder / "server.log"
    with server(log, *FLAGS, pass_seconds=PASS_SECONDS, module="tests.chaos.server") as (process, url):
        port = urlsplit(url).port
        assert port is not None
        chaos = Chaos(port=port, random=random.Random(seed))
        footprints = asyncio.run(_run(chaos, process, seconds=seconds))
    for line in log.read_text().splitlines():
        if any(word in line for word in ("ERROR", "CRITICAL", "Traceback", "never retrieved", "was destroyed")):
            chaos.faults[f"log: {line}"] += 1
    return chaos, footprints


async def _run(chaos: Chaos, process: subprocess.Popen[bytes], *, seconds: float) -> dict[str, Footprint]:
    footprints = {"before": Footprint.of(process.pid)}
    async with asyncio.TaskGroup() as group:
        for client, count in CLIENTS:
            for _ in range(count):
                group.create_task(chaos.repeat(client))
        await asyncio.sleep(seconds / 4)
        footprints["early"] = Footprint.of(process.pid)
        await asyncio.sleep(seconds * 3 / 4)
        footprints["late"] = Footprint.of(process.pid)
        chaos.stopping.set()
    # Until those who left are noticed.
    await asyncio.sleep(UNFINISHED_REQUEST_SECONDS + 1)
    footprints["afterwards"] = Footprint.of(process.pid)
    await _check_quiet(chaos, footprints)
    await _end(chaos, process)
    return footprints


async def _check_quiet(chaos: Chaos, footprints: dict[str, Footprint]) -> None:
    async with connected(chaos.port) as wire:
        values = await metrics(wire)
    for name in ("te_queue_size", "bert_queue_tokens"):
        if float(values[name]) != 0:
            chaos.faults[f"{name} is {values[name]}"] += 1
    if not await whole_queue_is_free(chaos, items=LARGEST_LIST):
        chaos.faults["something is still waiting or running"] += 1
    before, afterwards = footprints["before"].descriptors, footprints["afterwards"].descriptors
    if afterwards > before:
        chaos.faults[f"{afterwards} descriptors afterwards, {before} before"] += 1
    slowest = max(chaos.live_seconds)
    if slowest > LONGEST_LIVE_SECONDS:
        chaos.faults[f"/health/live took {slowest:.2f} s"] += 1
    growth = footprints["late"].resident_bytes - footprints["early"].resident_bytes
    if growth > MOST_GROWTH_BYTES:
        chaos.faults[f"{growth / 1e6:.0f} MB more than at a quarter of the time"] += 1


async def _end(chaos: Chaos, process: subprocess.Popen[bytes]) -> None:
    signalled = math.inf

    def listener_may_close() -> float:
        return signalled + SHUTDOWN_DELAY_SECONDS

    async with asyncio.TaskGroup() as group:
        for _ in range(LAST_CLIENTS):
            group.create_task(asks_until_the_end(chaos, signalled=listener_may_close))
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        signalled = time.monotonic()
        code = await asyncio.to_thread(process.wait, PATIENCE_SECONDS)
    if code != 0:
        chaos.faults[f"exit code {code}"] += 1
