"""Break the code in many small ways and see that tests notice: `python -m tests.mutants [WORD …]`.

Each mutant of `tests/mutations.py` is applied to a copy of the tree, and the tests that it names are run there. A
mutant that no test notices has survived. Words choose mutants by name; without any, all are run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOT_COPIED = (".*", "__pycache__", "*.egg-info", "build", "dist", "weights", "benchmarks")
LINKED = "weights"
TIMEOUT_SECONDS = 600

# Exit codes of pytest.
PASSED, FAILED = 0, 1


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One fault: in `file`, the text `old`, which occurs once, becomes `new`; one of `tests` must then fail.

    file: path from the root of the tree.
    tests: paths or node ids, as pytest takes them; the fewer, the faster.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class MutantError(Exception):
    """A mutant that cannot be judged: its text is gone, or its tests cannot be run or fail without it."""


def mutated(mutant: Mutant, *, root: Path) -> str:
    """The source with the fault in it.

    Raises:
        MutantError: the old text does not occur exactly once.
    """
    source = (root / mutant.file).read_text(encoding="utf-8")
    if (found := source.count(mutant.old)) != 1:
        raise MutantError(f"the old text occurs {found} times in {mutant.file}, not once")
    return source.replace(mutant.old, mutant.new)


@contextmanager
def copied(root: Path) -> Iterator[Path]:
    """A copy of the tree that is thrown away; large folders are links."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        if (root / LINKED).is_dir():
            (copy / LINKED).symlink_to(root / LINKED, target_is_directory=True)
        yield copy


def run_tests(tests: Sequence[str], *, tree: Path) -> tuple[int, str]:
    """pytest's exit code, and the last lines that it wrote."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    # Python puts the working directory first, so the copy is tested and not the installed package.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    return result.returncode, "\n".join((result.stdout + result.stderr).splitlines()[-15:])


def is_caught(mutant: Mutant, *, root: Path) -> bool:
    """Whether a test fails on the mutant.

    Raises:
        MutantError: the mutant cannot be made, or its tests cannot be run.
    """
    with copied(root) as tree:
        (tree / mutant.file).write_text(mutated(mutant, root=tree), encoding="utf-8")
        code, output = run_tests(mutant.tests, tree=tree)
    if code not in (PASSED, FAILED):
        raise MutantError(f"pytest ended with {code}:\n{output}")
    return code == FAILED


def check_baseline(mutants: Sequence[Mutant], *, root: Path) -> None:
    """See that all tests pass without a fault: else a failing test says nothing.

    Raises:
        MutantError: they do not.
    """
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    with copied(root) as tree:
        code, output = run_tests(tests, tree=tree)
    if code != PASSED:
        raise MutantError(f"the tests do not pass without a mutant:\n{output}")


def judge(mutant: Mutant, *, root: Path) -> tuple[str, float]:
    """`caught`, `SURVIVED` or what went wrong, and the seconds it took."""
    begin = time.perf_counter()
    try:
        verdict = "caught" if is_caught(mutant, root=root) else "SURVIVED"
    except (MutantError, subprocess.TimeoutExpired) as error:
        verdict = f"BROKEN: {error}"
    return verdict, time.perf_counter() - begin


def run_all(mutants: Sequence[Mutant], *, root: Path) -> int:
    """Judge mutants, a few at a time, print one line each, and return how many were not caught."""
    width = max(len(mutant.name) for mutant in mutants)
    check_baseline(mutants, root=root)
    not_caught = 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        verdicts = workers.map(lambda mutant: judge(mutant, root=root), mutants)
        for mutant, (verdict, seconds) in zip(mutants, verdicts, strict=True):
            print(f"{mutant.name:<{width}}  {mutant.file:<32}  {seconds:5.1f} s  {verdict}", flush=True)
            not_caught += verdict != "caught"
    print(f"{len(mutants) - not_caught} of {len(mutants)} mutants were caught")
    return not_caught


def main(words: Sequence[str]) -> int:
    """Run the chosen mutants; the exit status is 1 if one of them was not caught."""
    from tests.mutations import MUTANTS

    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    if not chosen:
        print(f"no mutant's name holds any of: {' '.join(words)}", file=sys.stderr)
        return 2
    try:
        return int(run_all(chosen, root=ROOT) > 0)
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
