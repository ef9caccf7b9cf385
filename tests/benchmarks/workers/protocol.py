"""A worker: a process that does what it is told over standard input and output, one JSON object a line.

So each engine lives in its own environment and process, and a coordinator can let them take turns. Nothing but the
standard library and numpy is imported here: every peer's environment has those.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Handler = Callable[..., dict[str, Any]]


class Runner(Protocol):
    """An engine in process, as every benchmark uses it."""

    def encode(self, texts: Sequence[str], /) -> Any:
        """Tokenize and batch."""
        ...

    def embed(self, encoded: Any, /) -> FloatArray:
        """Mean-pooled, normalised embeddings `[N, D]` in the order of the texts."""
        ...


def serve(load: Callable[[Mapping[str, Any]], Mapping[str, Handler]], *, packages: Sequence[str]) -> None:
    """Load with the options of the first argument, report versions, then answer commands until the input ends.

    A command is `{"command": name, **arguments}`; a failure is answered with `{"error": …}` and ends the worker.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    try:
        handlers = load(json.loads(sys.argv[1]))
        _answer(answers, {"versions": {name: _version(name) for name in packages}})
        for line in sys.stdin:
            command = json.loads(line)
            _answer(answers, handlers[command.pop("command")](**command))
    except Exception as error:
        _answer(answers, {"error": f"{type(error).__name__}: {error}"})
        raise


def runner_handlers(runner: Runner) -> dict[str, Handler]:
    """The commands that each engine understands."""

    def run_pass(texts: list[str]) -> dict[str, Any]:
        begin = time.perf_counter()
        encoded = runner.encode(texts)
        tokenized = time.perf_counter()
        runner.embed(encoded)
        return {"seconds": time.perf_counter() - begin, "tokenization_seconds": tokenized - begin}

    def one_by_one(texts: list[str]) -> dict[str, Any]:
        seconds = []
        for text in texts:
            begin = time.perf_counter()
            runner.embed(runner.encode([text]))
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds}

    def vectors(texts: list[str]) -> dict[str, Any]:
        found = np.ascontiguousarray(runner.embed(runner.encode(texts)), dtype=np.float32)
        return {"shape": found.shape, "float32": base64.b64encode(found.tobytes()).decode()}

    return {"pass": run_pass, "one_by_one": one_by_one, "vectors": vectors, "memory": memory}


def memory() -> dict[str, Any]:
    """Resident bytes of this process: now, and the most so far."""
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return {name: int(fields[field].split()[0]) * 1024 for name, field in (("resident", "VmRSS"), ("peak", "VmHWM"))}


def _answer(answers: Any, content: Mapping[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
