"""What the service costs before and after it works: `python -m tests.benchmarks.cost`.

Time from its start to the first 200 of `/health/ready`, beside the time of a Python that only imports torch; resident
memory beside the same Python's plus the weights; and memory before and after thousands of requests of all lengths.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.environments import log_file
from tests.benchmarks.live import import_torch, our_server, running
from tests.benchmarks.load import run_load
from tests.benchmarks.options import Options, add_options, read_options
from tests.benchmarks.over_http import MANY, ask_embed
from tests.benchmarks.texts import distinct, sample

PARAMETER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
FIRST_REQUESTS = 500
ALL_REQUESTS = 5000


def measure(options: Options, *, requests: int = ALL_REQUESTS) -> dict[str, Any]:
    """Start each server `rounds` times, in turns with the bare import; then load one of each.

    Returns:
        `import_torch` (seconds, bytes) and `servers` (a dict for each dtype).
    """
    bare: list[tuple[float, int]] = []
    starts: dict[str, list[tuple[float, int]]] = {dtype: [] for dtype in options.dtypes}
    for _ in range(options.rounds):
        bare.append(import_torch(threads=options.threads))
        for dtype, ran in starts.items():
            with running(our_server(dtype), threads=options.threads, log=log_file(f"{dtype} cost")) as server:
                ran.append((server.ready_seconds, server.resident_bytes()))
    import_seconds, import_bytes = (median(column) for column in zip(*bare, strict=True))
    found = []
    for dtype, ran in starts.items():
        ready_seconds, ready_bytes = (median(column) for column in zip(*ran, strict=True))
        row = _under_load(dtype, options=options, requests=requests)
        found.append({**row, "dtype": dtype, "ready_seconds": ready_seconds, "ready_bytes": ready_bytes})
    return {
        "import_torch_seconds": import_seconds,
        "import_torch_bytes": import_bytes,
        "servers": found,
        "requests": requests,
        "rounds": options.rounds,
        "threads": options.threads,
    }


def _under_load(dtype: str, *, options: Options, requests: int) -> dict[str, Any]:
    texts = distinct(sample(options.texts), count=FIRST_REQUESTS + requests + 2 * MANY)
    asked = [ask_embed(text) for text in texts]
    cut = FIRST_REQUESTS + MANY
    with running(our_server(dtype), threads=options.threads, log=log_file(f"{dtype} cost")) as server:
        parameters = int(server.get("/info")["parameters"])
        run_load(server.url, asked[:cut], connections=MANY)
        first = server.resident_bytes()
        run_load(server.url, asked[cut:], connections=MANY)
        return {
            "weight_bytes": parameters * PARAMETER_BYTES[dtype],
            "bytes_after_first": first,
            "bytes_after_all": server.resident_bytes(),
            "peak_bytes": server.resident_bytes("VmHWM"),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cost", description=__doc__)
    add_options(parser)
    options = read_options(parser.parse_args(arguments))
    report.publish({"cost": measure(options)}, options=options)


if __name__ == "__main__":
    main()
