"""Coverage-guided fuzzing with atheris: `pip install -e '.[fuzz]'`, `python -m tests.fuzz tokenizer --minutes 10`."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import atheris


def main() -> None:
    """Fuzz one target; an input that breaks it is written to the working directory, and the exit code is not 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=("checkpoint", "tokenizer"))
    parser.add_argument("--minutes", type=float, default=10.0, help="(default: %(default)s)")
    parser.add_argument("--corpus", type=Path, help="a folder of inputs that is read and added to")
    given = parser.parse_args()
    with atheris.instrument_imports(include=["bert_core"]):
        from tests.fuzz.targets import TARGETS, quiet_threads
    quiet_threads()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"-max_total_time={round(60 * given.minutes)}", "-rss_limit_mb=4096", "-timeout=20", "-max_len=4096"]
        corpus = [] if given.corpus is None else [str(given.corpus)]
        atheris.Setup([sys.argv[0], *flags, *corpus], TARGETS[given.target](Path(folder)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
