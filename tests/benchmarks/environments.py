"""The peers' virtual environments: `python -m tests.benchmarks.environments [NAME …]` makes those that are missing.

Each has pins of its own, `requirements/NAME.txt`. They live below `$BENCH_HOME`, by default `.bench/` in the tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.benchmarks.texts import ROOT

REQUIREMENTS = Path(__file__).parent / "requirements"
OURS = "ours"

# The machine's settings for old OpenBLAS builds would slow numpy down.
NOT_PASSED_ON = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class EnvironmentMissing(Exception):
    """An environment that could not be made; the message is pip's last words."""


def bench_home() -> Path:
    """Where environments and converted models are kept between runs."""
    return Path(os.environ.get("BENCH_HOME") or ROOT / ".bench").resolve()


def log_file(name: str) -> Path:
    """Where the standard error of a process goes."""
    folder = bench_home() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name.replace(' ', '-').replace(',', '')}.log"


def names() -> list[str]:
    """Every peer environment that there are pins for."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def interpreter(name: str) -> Path:
    """The Python of an environment; ours is the one that runs this.

    Raises:
        EnvironmentMissing: it has not been made, or its installation failed.
    """
    if name == OURS:
        return Path(sys.executable)
    if not _installed(name).exists():
        raise EnvironmentMissing(f"environment {name} is not installed: python -m tests.benchmarks.environments {name}")
    return _folder(name) / "bin" / "python"


def make(name: str) -> None:
    """Make an environment anew, unless its pins are installed already.

    Raises:
        EnvironmentMissing: pip failed.
    """
    pins = (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    if _installed(name).exists() and _installed(name).read_text(encoding="utf-8") == pins:
        return
    print(f"making environment {name} …", flush=True)
    shutil.rmtree(_folder(name), ignore_errors=True)
    venv.create(_folder(name), with_pip=True)
    python, requirements = str(_folder(name) / "bin" / "python"), str(REQUIREMENTS / f"{name}.txt")
    command = [python, "-m", "pip", "install", "--quiet", "--requirement", requirements]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or [result.stderr[-300:]]
        raise EnvironmentMissing(f"environment {name} cannot be installed: {' '.join(errors)}")
    _installed(name).write_text(pins, encoding="utf-8")


def make_all(wanted: Sequence[str]) -> dict[str, str]:
    """Make environments; for those that cannot be had, the reason."""
    failures = {}
    for name in wanted:
        try:
            make(name)
        except EnvironmentMissing as error:
            failures[name] = str(error)
            print(error, flush=True)
    return failures


def variables(*, threads: int) -> Mapping[str, str]:
    """The environment variables of each process that is measured: all have the same threads and no network."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    return kept | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
    }


def _folder(name: str) -> Path:
    return bench_home() / "environments" / name


def _installed(name: str) -> Path:
    return _folder(name) / "installed.txt"


if __name__ == "__main__":
    sys.exit(bool(make_all(sys.argv[1:] or names())))
