"""The whole benchmark: `python -m tests.benchmarks` (`make bench`), or with `--quick` a short form."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from tests.benchmarks import cost, engine, machine, over_http, report, shapes
from tests.benchmarks.environments import make_all, names
from tests.benchmarks.options import add_options, read_options
from tests.benchmarks.texts import BLOCK

QUICK_ROUNDS, QUICK_TEXTS, QUICK_REQUESTS = 2, BLOCK, 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the environments, measure every part, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    add_options(parser)
    parser.add_argument("--quick", action="store_true", help="2 rounds of 128 texts: to see that everything runs")
    parser.set_defaults(name="bench")
    given = parser.parse_args(arguments)
    options = read_options(given)
    if given.quick:
        options = replace(options, rounds=QUICK_ROUNDS, texts=QUICK_TEXTS, name=f"{options.name}-quick")
    make_all(names())
    print(f"load average before the start: {machine.load_average()}", flush=True)
    sections = {"engine": engine.measure(options), "http": over_http.measure(options)}
    # Only our own engine and one peer run here, so fewer texts and rounds tell as much.
    sections["shapes"] = shapes.measure(replace(options, rounds=min(options.rounds, 3), texts=2 * BLOCK))
    requests = QUICK_REQUESTS if given.quick else cost.ALL_REQUESTS
    sections["cost"] = cost.measure(replace(options, rounds=min(options.rounds, 3)), requests=requests)
    report.publish(sections, options=options)


if __name__ == "__main__":
    main()
