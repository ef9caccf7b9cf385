"""More requests than can be answered: `python -m tests.benchmarks.overload`, about six minutes with all rates.

The capacity is measured first, by 32 clients that each wait for their answers. Then requests arrive at random times, at
so many times the capacity, whether or not earlier ones are answered. An answer that comes after the deadline counts for
nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from service.engine.device import available_cpus
from service.load_generator.http_client import Address
from service.load_generator.load import NOT_SENT, LoadGenerator, Plan
from service.load_generator.measurements import LATENCY, Measurements
from service.load_generator.requests import Requests
from service.load_generator.texts import Texts, parse_lengths
from tests.benchmarks import machine
from tests.benchmarks.charts import line_chart
from tests.benchmarks.checkpoint import bert_base_checkpoint
from tests.benchmarks.live import Running, our_server, running
from tests.benchmarks.report import RESULTS
from tests.benchmarks.tables import table

FACTORS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
CAPACITY_CONNECTIONS = 32
CONNECTIONS = 1024
LENGTHS = "47/84"
WARM_UP_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What came of one rate of arrivals; all rates are per second, latencies in milliseconds.

    good: answers within the deadline.
    refused, late: 429; 504 or an answer after the deadline.
    other: whatever else went wrong.
    unsent: no connection was free: the client was the limit.
    client_cores, server_cores: CPU seconds per second.
    """

    factor: float
    offered: float
    good: float
    refused: float
    late: float
    other: float
    unsent: float
    p50: float
    p99: float
    client_cores: float
    server_cores: float


def main() -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each rate (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="all rates in turns, so often (default: %(default)s)")
    parser.add_argument("--deadline", type=float, default=2.0, metavar="SECONDS", help="(default: %(default)s)")
    parser.add_argument("--dtype", default="float32", help="(default: %(default)s)")
    parser.add_argument(
        "--cpu-threads", type=int, metavar="N", help="of the service's model; fewer than cores leave some to the rest"
    )
    parser.add_argument(
        "--factors",
        type=float,
        nargs="+",
        default=FACTORS,
        metavar="X",
        help="times the capacity (default: %(default)s)",
    )
    parser.add_argument("--bert-base", action="store_true", help="a model of that size, in place of the shipped one")
    parser.add_argument("--name", help="write results/DATE-NAME.json, .md and .svg; else only print")
    given = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 4 * CONNECTIONS), limit))
    server = our_server(given.dtype, checkpoint=bert_base_checkpoint() if given.bert_base else None)
    flags = ["--request-timeout-seconds", str(given.deadline)]
    if given.cpu_threads is not None:
        flags += ["--cpu-threads", str(given.cpu_threads)]
    server = replace(server, command=(*server.command, *flags))
    with (
        tempfile.TemporaryDirectory() as folder,
        running(server, threads=available_cpus(), log=Path(folder) / "log") as live,
    ):
        found = _measure(
            live,
            seconds=given.seconds,
            deadline_seconds=given.deadline,
            rounds=given.rounds,
            factors=given.factors,
        )
    model = "a model of bert-base's size" if given.bert_base else "the shipped model"
    name = f"{server.name} {' '.join(flags)}, {model}"
    _publish({"machine": machine.describe(), "server": name, **found}, name=given.name)


def _measure(
    live: Running, *, seconds: float, deadline_seconds: float, rounds: int, factors: Sequence[float]
) -> dict[str, Any]:
    closed, _ = _load(live, rate=None, connections=CAPACITY_CONNECTIONS, seconds=seconds)
    capacity = closed.requests / seconds
    print(f"capacity: {capacity:.0f} requests/s", flush=True)
    ran: dict[float, list[Level]] = {factor: [] for factor in factors}
    for _ in range(rounds):
        for factor in factors:
            measured, cores = _load(live, rate=factor * capacity, connections=CONNECTIONS, seconds=seconds)
            level = level_of(measured, factor=factor, seconds=seconds, deadline_seconds=deadline_seconds, cores=cores)
            print(level, flush=True)
            ran[factor].append(level)
    return {
        "capacity": capacity,
        "seconds": seconds,
        "deadline_seconds": deadline_seconds,
        "rounds": rounds,
        "levels": [asdict(median_level(levels)) for levels in ran.values()],
    }


def median_level(levels: Sequence[Level]) -> Level:
    """Each figure's median."""
    return Level(**{field.name: median(getattr(level, field.name) for level in levels) for field in fields(Level)})


def _load(
    live: Running, *, rate: float | None, connections: int, seconds: float
) -> tuple[Measurements, tuple[float, float]]:
    """What a client of its own measures, and how many cores it and the service take."""
    plan = Plan(
        connections=connections,
        duration_seconds=seconds,
        warm_up_seconds=WARM_UP_SECONDS,
        rate=rate,
        timeout_seconds=60,
    )
    texts = Texts(parse_lengths(LENGTHS, limit=512), seed=7)
    requests = Requests(texts, route="embed", list_size=1, mask_token="[MASK]")
    load = LoadGenerator(Address.parse(live.url), requests=requests, plan=plan, api_key=None, seed=7)
    begun, client, server = time.perf_counter(), time.process_time(), _cpu_seconds(live.process.pid)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load.run())
    wall = time.perf_counter() - begun
    cores = ((time.process_time() - client) / wall, (_cpu_seconds(live.process.pid) - server) / wall)
    return load.measurements, cores


def _cpu_seconds(pid: int) -> float:
    values = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")


def level_of(
    measured: Measurements, *, factor: float, seconds: float, deadline_seconds: float, cores: tuple[float, float]
) -> Level:
    """What was measured in so many seconds, as rates."""
    latencies = sorted(measured.times_ms[LATENCY])
    good = sum(latency <= 1000 * deadline_seconds for latency in latencies)
    failures = dict(measured.failures)
    refused = failures.pop("429 Overloaded", 0)
    late = failures.pop("504 Timeout", 0) + len(latencies) - good
    unsent = failures.pop(NOT_SENT, 0)
    other = sum(failures.values())
    return Level(
        factor=factor,
        offered=(good + refused + late + unsent + other) / seconds,
        good=good / seconds,
        refused=refused / seconds,
        late=late / seconds,
        other=other / seconds,
        unsent=unsent / seconds,
        p50=_percentile(latencies, 50),
        p99=_percentile(latencies, 99),
        client_cores=cores[0],
        server_cores=cores[1],
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[math.ceil(percent / 100 * len(ordered)) - 1] if ordered else math.nan


def _publish(found: Mapping[str, Any], *, name: str | None) -> None:
    stem = f"{datetime.now(UTC):%Y-%m-%d}-{name or 'overload'}"
    pictures = _pictures(found)
    page = _page(found, pictures=[f"{stem}-{picture}.svg" for picture in pictures])
    print(page)
    if name is not None:
        (RESULTS / f"{stem}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        (RESULTS / f"{stem}.md").write_text(page, encoding="utf-8")
        for picture, content in pictures.items():
            (RESULTS / f"{stem}-{picture}.svg").write_text(content, encoding="utf-8")


def _page(found: Mapping[str, Any], *, pictures: Sequence[str]) -> str:
    described, levels = found["machine"], found["levels"]
    peak = max(level["good"] for level in levels)
    rows = [
        [
            f"{level['factor']:g}",
            *(f"{level[name]:,.0f}" for name in ("offered", "good")),
            f"{level['good'] / peak:.0%}",
            *(f"{level[name]:,.0f}" for name in ("refused", "late", "other", "unsent", "p50", "p99")),
            *(f"{level[name]:.2f}" for name in ("client_cores", "server_cores")),
        ]
        for level in levels
    ]
    heads = ["times capacity", "offered/s", "good/s", "of the peak", "refused/s", "late/s", "other/s", "unsent/s"]
    heads += ["p50 ms", "p99 ms", "client's cores", "server's cores"]
    return f"""# Overload, {described["date"]}

{described["processor"]}, {described["cpus"]} CPUs, shared by the service and its client; commit {described["commit"]}.
{found["server"]}, `/embed`, one text a request, {LENGTHS} tokens (median/mean).
Medians of {found["rounds"]} rounds through all rates, {found["seconds"]:g} s each.
Capacity with {CAPACITY_CONNECTIONS} connections: {found["capacity"]:,.0f} requests/s.

Good are answers within {found["deadline_seconds"]:g} s of the arrival of the request, also if no connection was free.
The peak is the best of these rates. p50 and p99 are of all answers with status 200. Unsent: no connection was free; the
client was the limit.

{table(heads, rows)}

{"".join(f"![]({picture})" for picture in pictures)}
"""


def _pictures(found: Mapping[str, Any]) -> dict[str, str]:
    """Offered load against goodput, and against latency."""
    described, levels = found["machine"], found["levels"]
    note = f"{described['processor']}, {described['cpus']} CPUs, {described['date']}"
    deadline_ms = 1000 * found["deadline_seconds"]

    def line(name: str) -> dict[int, float]:
        return {round(level["offered"]): level[name] for level in levels}

    goodput = {"answered in time": line("good"), "refused": line("refused")}
    latency = {"p50": line("p50"), "p99": line("p99"), "deadline": dict.fromkeys(line("p99"), deadline_ms)}
    x_label = "requests offered per second"
    return {
        "goodput": line_chart("Overload: requests per second", goodput, note=note, x_label=x_label),
        "latency": line_chart("Overload: latency of answers in ms", latency, note=note, x_label=x_label),
    }


if __name__ == "__main__":
    main()
