"""This project's engine, as the service runs it: the same encoding, batching policy and passes, without HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from service.batching.policy import QueueLimits, WaitingQueue
from service.engine.encoding import EncodedTask
from service.engine.engine import Engine
from service.errors import ServiceError
from service.tasks import Embed, EmbedResult, Pooling
from tests.benchmarks.checkpoint import full_length_checkpoint
from tests.benchmarks.workers.protocol import FloatArray, Handler, runner_handlers, serve


class EngineRunner:
    """Batches in the order of arrival.

    Args:
        engine: warmed up.
        batch_tokens: the token budget of a pass.
    """

    def __init__(self, engine: Engine, *, batch_tokens: int) -> None:
        self._engine = engine
        self._batch_tokens = batch_tokens
        self._batch_texts: int | None = None
        self._pooling: Pooling = "mean"

    def configure(self, *, batch_texts: int | None = None, pooling: Pooling = "mean") -> dict[str, Any]:
        """From now on: cut batches after so many texts instead of by the budget, and pool so."""
        self._batch_texts, self._pooling = batch_texts, pooling
        return {}

    def encode(self, texts: Sequence[str]) -> list[EncodedTask]:
        """One task per text."""
        return [self._engine.encode(Embed(text=text, pooling=self._pooling)) for text in texts]

    def embed(self, encoded: list[EncodedTask]) -> FloatArray:
        """`[N, D]`."""
        return np.stack([_vector(result) for batch in self.batches(encoded) for result in self._engine.run(batch)])

    def batches(self, tasks: list[EncodedTask]) -> Iterator[list[EncodedTask]]:
        """What the batcher would make of tasks that all wait."""
        if self._batch_texts is not None:
            for first in range(0, len(tasks), self._batch_texts):
                yield tasks[first : first + self._batch_texts]
            return
        limits = QueueLimits(
            max_concurrent_requests=len(tasks),
            max_queue_tokens=sum(task.compute_tokens for task in tasks),
            max_batch_tokens=self._batch_tokens,
        )
        queue: WaitingQueue[EncodedTask] = WaitingQueue(limits)
        queue.add(tasks, client="benchmark", deadline=None)
        while batch := queue.take_batch(now=0.0).items:
            yield batch

    def work(self, texts: list[str]) -> dict[str, Any]:
        """How many tokens these texts are, in how many batches, and their arithmetic."""
        tasks = self.encode(texts)
        return {
            "lengths": [task.tokens for task in tasks],
            "batches": len(list(self.batches(tasks))),
            "batch_tokens": self._batch_tokens,
        }


def _vector(result: object) -> FloatArray:
    if isinstance(result, ServiceError):
        raise result
    assert isinstance(result, EmbedResult)
    return result.vector


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: dtype, threads."""
    engine = Engine.load(full_length_checkpoint(), device="cpu", dtype=options["dtype"])
    torch.set_num_threads(options["threads"])
    runner = EngineRunner(engine, batch_tokens=engine.warm_up())
    return {**runner_handlers(runner), "work": runner.work, "configure": runner.configure}


if __name__ == "__main__":
    serve(load, packages=("torch", "tokenizers", "numpy"))
