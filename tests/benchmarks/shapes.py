"""Throughput against text length, batch size and connections: `python -m tests.benchmarks.shapes`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from statistics import median
from typing import Any, TypeVar

from tests.benchmarks import report
from tests.benchmarks.contenders import ours, start, transformers
from tests.benchmarks.environments import log_file
from tests.benchmarks.live import our_server, running
from tests.benchmarks.load import run_load
from tests.benchmarks.options import Options, add_options, read_options
from tests.benchmarks.over_http import ask_embed
from tests.benchmarks.processes import Worker
from tests.benchmarks.texts import distinct, of_length, rotated, sample

LENGTHS = (16, 32, 64, 128, 256, 512)
BATCH_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)
POOLINGS = ("mean", "cls")
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64, 128)

Shape = TypeVar("Shape", int, str)

# Tokens of one measurement of a length.
TOKENS = 8192


def measure(options: Options) -> dict[str, Any]:
    """Run everything.

    Returns:
        `lengths`: name to length to tokens per second; `batches`: name to texts in a batch to texts per second;
        `poolings`: name to pooling to texts per second;
        `connections`: name to connections to requests per second and median latency; `memory`: name to peak resident
        bytes after each length, in ascending order; `failed`.
    """
    failed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        compared = [*ours(options.dtypes), *transformers(sort=False)]
        started = start(compared, options=options, stack=stack, failed=failed)
        workers = {c.name: worker for c, worker in started}
        our_workers = {c.name: worker for c, worker in started if c.is_ours}
        # Memory first: the peak of a process never falls.
        memory = {
            name: {length: _peak_after(worker, length=length) for length in LENGTHS}
            for name, worker in our_workers.items()
        }
        lengths: list[dict[str, dict[int, float]]] = [_length_round(workers) for _ in range(options.rounds)]
        poolings = [_pooling_round(our_workers, texts=sample(options.texts)) for _ in range(options.rounds)]
        batches = [_batch_round(our_workers, texts=sample(options.texts)) for _ in range(options.rounds)]
    return {
        "lengths": _medians(lengths),
        "batches": _medians(batches),
        "poolings": _medians(poolings),
        "connections": _connections(options),
        "memory": memory,
        "failed": failed,
        "rounds": options.rounds,
        "threads": options.threads,
    }


def _texts_of(length: int) -> list[str]:
    return of_length(length, count=TOKENS // length)


def _peak_after(worker: Worker, *, length: int) -> int:
    worker.ask("pass", texts=_texts_of(length))
    return int(worker.ask("memory")["peak"])


def _length_round(workers: dict[str, Worker]) -> dict[str, dict[int, float]]:
    """Tokens per second of the model, without tokenization."""
    found: dict[str, dict[int, float]] = {name: {} for name in workers}
    for length in LENGTHS:
        texts = _texts_of(length)
        for name, worker in workers.items():
            one = worker.ask("pass", texts=texts)
            found[name][length] = length * len(texts) / (one["seconds"] - one["tokenization_seconds"])
    return found


def _batch_round(workers: dict[str, Worker], *, texts: list[str]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {name: {} for name in workers}
    for size in BATCH_TEXTS:
        for name, worker in workers.items():
            worker.ask("configure", batch_texts=size)
            found[name][size] = len(texts) / worker.ask("pass", texts=texts)["seconds"]
    return found


def _pooling_round(workers: dict[str, Worker], *, texts: list[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {name: {} for name in workers}
    for pooling in POOLINGS:
        for name, worker in workers.items():
            worker.ask("configure", pooling=pooling)
            found[name][pooling] = len(texts) / worker.ask("pass", texts=texts)["seconds"]
    return found


def _connections(options: Options) -> dict[str, dict[int, dict[str, float]]]:
    """Requests per second and median latency; servers take turns at each number of connections."""
    rounds: list[dict[tuple[str, int], tuple[float, float]]] = []
    with contextlib.ExitStack() as stack:
        live = {
            dtype: stack.enter_context(
                running(our_server(dtype), threads=options.threads, log=log_file(f"{dtype} shapes"))
            )
            for dtype in options.dtypes
        }
        for number in range(options.rounds):
            texts = rotated(sample(options.texts), words=number)
            rounds.append({})
            for connections in CONNECTIONS:
                requests = [ask_embed(text) for text in distinct(texts, count=len(texts) + connections)]
                for dtype, server in live.items():
                    result = run_load(server.url, requests, connections=connections)
                    rounds[-1][dtype, connections] = result.requests_per_second, result.median
    return {
        f"bert-service {dtype}": {
            connections: {
                "requests_per_second": median(one[dtype, connections][0] for one in rounds),
                "median": median(one[dtype, connections][1] for one in rounds),
            }
            for connections in CONNECTIONS
        }
        for dtype in options.dtypes
    }


def _medians(rounds: Sequence[dict[str, dict[Shape, float]]]) -> dict[str, dict[Shape, float]]:
    return {name: {x: median(one[name][x] for one in rounds) for x in values} for name, values in rounds[0].items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.shapes", description=__doc__)
    add_options(parser)
    options = read_options(parser.parse_args(arguments))
    report.publish({"shapes": measure(options)}, options=options)


if __name__ == "__main__":
    main()
