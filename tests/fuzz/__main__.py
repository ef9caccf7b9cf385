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
        from tests.fuzz.targets import TARGETS, seeds, use_one_thread
    use_one_thread()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        flags = [
            f"-max_total_time={round(60 * given.minutes)}",
            "-rss_limit_mb=4096",
            "-timeout=20",
            "-max_len=4096",
            "-len_control=0",
        ]
        files, begin = Path(folder) / "files", Path(folder) / "seeds"
        target = TARGETS[given.target](files)
        begin.mkdir()
        for number, data in enumerate(seeds(given.target, files)):
            (begin / str(number)).write_bytes(data)
        corpus = [] if given.corpus is None else [str(given.corpus)]  # the first is the one that is added to
        atheris.Setup([sys.argv[0], *flags, *corpus, str(begin)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
