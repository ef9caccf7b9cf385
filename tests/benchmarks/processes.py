"""Engines as processes that answer one command at a time; see `workers/protocol.py`."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.benchmarks.environments import interpreter, variables
from tests.benchmarks.texts import ROOT


class WorkerFailed(Exception):
    """A worker that could not load or answer; the message is its own."""


class Worker:
    """A running worker. Use as a context manager.

    Args:
        module: below `tests.benchmarks.workers`.
        environment: whose Python runs it.
        options: for its `load`.
        threads: CPU threads that it may use.
        log: where its standard error goes.

    Raises:
        EnvironmentMissing: it has no environment.
        WorkerFailed: it could not load.
    """

    def __init__(self, module: str, *, environment: str, options: Mapping[str, Any], threads: int, log: Path) -> None:
        command = [
            str(interpreter(environment)),
            "-m",
            f"tests.benchmarks.workers.{module}",
            json.dumps({**options, "threads": threads}),
        ]
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=variables(threads=threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.versions: dict[str, str] = self._answer()["versions"]

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Give a command and wait for its answer.

        Raises:
            WorkerFailed: the answer is an error, or the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed("the process has ended") from None
        return self._answer()

    def vectors(self, texts: list[str]) -> npt.NDArray[np.float32]:
        """Its embeddings of some texts, `[N, D]`."""
        answer = self.ask("vectors", texts=texts)
        return np.frombuffer(base64.b64decode(answer["float32"]), dtype=np.float32).reshape(answer["shape"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process has ended"}
        if "error" in answer:
            self.close()
            raise WorkerFailed(answer["error"])
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
