"""This project's engine, as the service runs it: the same encoding, batching policy and passes, without HTTP."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from service.batching.policy import QueueLimits, WaitingQueue
from service.engine.encoding import EncodedTask
from service.engine.engine import Engine
from service.errors import ServiceError
from service.tasks import Embed, EmbedResult, Pooling
from tests.benchmarks.checkpoint import full_length_checkpoint
from tests.benchmarks.workers.protocol import FloatArray, Handler, runner_handlers, serve


class _Waiting:
    """Tasks that wait for the lanes of an engine, each of which takes its passes from here."""

    def __init__(self, tasks: list[EncodedTask], *, batch_tokens: int, threads: int) -> None:
        limits = QueueLimits(
            max_concurrent_requests=len(tasks),
            max_queue_tokens=sum(task.compute_tokens for task in tasks),
            max_batch_tokens=batch_tokens,
        )
        self._queue: WaitingQueue[EncodedTask] = WaitingQueue(limits)
        self._queue.add(tasks, client="benchmark", deadline=None)
        self._lock = threading.Lock()
        self._threads = self._idle = threads
        self.passes = 0

    def take(self) -> tuple[list[EncodedTask], int] | None:
        """The tasks of a lane's next pass, and its threads; None when nothing waits, or no thread is left."""
        with self._lock:
            if not self._idle or not self._queue.waiting_items:
                return None
            size = self._queue.pass_size(threads=self._threads, idle=self._idle)
            self._idle -= size.threads
            self.passes += 1
            return self._queue.take_batch(now=0.0, max_tokens=size.max_tokens).items, size.threads

    def ended(self, threads: int) -> None:
        """A pass of so many threads has."""
        with self._lock:
            self._idle += threads


class EngineRunner:
    """Batches in the order of arrival.

    Args:
        engine: warmed up.
        batch_tokens: the token budget of a pass.
    """

    def __init__(self, engine: Engine, *, batch_tokens: int) -> None:
        self._engine = engine
        self._batch_tokens = batch_tokens
        # As the service has them, each of a thread of its own for good.
        self._lanes = [ThreadPoolExecutor(max_workers=1) for _ in range(engine.threads)]
        self._batch_texts: int | None = None
        self._pooling: Pooling = "mean"

    def configure(self, *, batch_texts: int | None = None, pooling: Pooling = "mean") -> dict[str, Any]:
        """From now on: so many texts wait at a time instead of all, and pool so."""
        self._batch_texts, self._pooling = batch_texts, pooling
        return {}

    def encode(self, texts: Sequence[str]) -> list[EncodedTask]:
        """One task per text."""
        return [self._engine.encode(Embed(text=text, pooling=self._pooling)) for text in texts]

    def embed(self, encoded: list[EncodedTask]) -> FloatArray:
        """`[N, D]`."""
        at_once = self._batch_texts or len(encoded)
        return np.concatenate(
            [self._run(encoded[first : first + at_once])[1] for first in range(0, len(encoded), at_once)]
        )

    def _run(self, tasks: list[EncodedTask]) -> tuple[int, FloatArray]:
        """What the batcher would make of tasks that all wait: the number of passes, and `[N, D]`."""
        waiting = _Waiting(tasks, batch_tokens=self._batch_tokens, threads=self._engine.threads)
        lanes = [lane.submit(self._run_lane, waiting) for lane in self._lanes]
        vectors = dict(found for lane in lanes for found in lane.result())
        return waiting.passes, np.stack([vectors[id(task)] for task in tasks])

    def _run_lane(self, waiting: _Waiting) -> list[tuple[int, FloatArray]]:
        found = []
        while batch := waiting.take():
            tasks, threads = batch
            results = self._engine.run(tasks, threads=threads)
            found += [(id(task), _vector(result)) for task, result in zip(tasks, results, strict=True)]
            waiting.ended(threads)
        return found

    def work(self, texts: list[str]) -> dict[str, Any]:
        """How many tokens these texts are, in how many batches, and their arithmetic."""
        tasks = self.encode(texts)
        return {
            "lengths": [task.tokens for task in tasks],
            "batches": self._run(tasks)[0],
            "batch_tokens": self._batch_tokens,
        }


def _vector(result: object) -> FloatArray:
    if isinstance(result, ServiceError):
        raise result
    assert isinstance(result, EmbedResult)
    return result.vector


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: dtype, threads."""
    engine = Engine.load(full_length_checkpoint(), device="cpu", dtype=options["dtype"], threads=options["threads"])
    runner = EngineRunner(engine, batch_tokens=engine.warm_up())
    return {**runner_handlers(runner), "work": runner.work, "configure": runner.configure}


if __name__ == "__main__":
    serve(load, packages=("torch", "tokenizers", "numpy"))
