"""What every benchmark can be told on the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from service.engine.device import available_cpus
from tests.benchmarks.texts import BLOCK


@dataclass(frozen=True, kw_only=True)
class Options:
    """texts: of the sample, a multiple of `BLOCK`. only: words; an engine runs if its name holds one of them.

    threads: of each engine and server: the CPUs that this process may use, fewer under `taskset`.
    name: results are written to `results/DATE-NAME.*`; None prints only.
    """

    rounds: int
    texts: int
    threads: int
    dtypes: tuple[str, ...]
    only: tuple[str, ...]
    name: str | None

    def includes(self, name: str) -> bool:
        """Whether something of this name shall run."""
        return not self.only or any(word in name for word in self.only)


def add_options(parser: argparse.ArgumentParser, *, rounds: int = 5, texts: int = 4 * BLOCK) -> None:
    """The flags."""
    parser.add_argument("--rounds", type=int, default=rounds, help="passes of each engine (default: %(default)s)")
    parser.add_argument("--texts", type=int, default=texts, help=f"a multiple of {BLOCK} (default: %(default)s)")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], help="of our engine")
    parser.add_argument("--only", nargs="+", default=[], help="words; only what has one of them in its name runs")
    parser.add_argument("--name", help="write results/DATE-NAME.json, .md and .svg; else only print")


def read_options(given: argparse.Namespace) -> Options:
    """From parsed arguments."""
    return Options(
        rounds=given.rounds,
        texts=given.texts,
        threads=available_cpus(),
        dtypes=tuple(given.dtypes),
        only=tuple(given.only),
        name=given.name,
    )
