"""An engine without a model: its answers tell which text they belong to, and tests decide when a pass ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import numpy as np

from service.batching.batcher import Batcher
from service.batching.policy import QueueLimits
from service.errors import BackendFailure, EmptyInput, ServiceError
from service.observability.metrics import Metrics
from service.tasks import (
    Decode,
    DecodeResult,
    Embed,
    EmbedResult,
    FillMask,
    FillMaskResult,
    NextSentence,
    NextSentenceResult,
    Result,
    Task,
)
from tests.service.fake_engine import PATIENCE_SECONDS, FakeEncoded


class FakeClock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def embed(number: int, *, tokens: int = 3) -> Embed:
    """A task whose answer is `number`."""
    return Embed(text=f"{number} " + "word " * (tokens - 1))


def number_of(task: Task) -> int:
    assert isinstance(task, Embed | FillMask | NextSentence)
    assert isinstance(task.text, str)
    return int(task.text.split()[0])


def result_of(task: Task) -> Result:
    number = number_of(task)
    if isinstance(task, FillMask):
        return FillMaskResult(masks=(), tokens=number, truncated=False)
    if isinstance(task, NextSentence):
        return NextSentenceResult(is_next=1, not_next=0, logits=(number, 0), tokens=1, truncated=False)
    return EmbedResult(vector=np.full(2, number, dtype=np.float32), tokens=1, truncated=False)


def number_in(result: Result) -> int:
    """The inverse of `result_of`."""
    if isinstance(result, FillMaskResult):
        return result.tokens
    if isinstance(result, NextSentenceResult):
        return int(result.logits[0])
    assert isinstance(result, EmbedResult)
    return int(result.vector[0])


class FakeEngine:
    """Words are tokens; an empty text is refused; numbers in `failing` fail alone.

    batches: the numbers of each pass, in order.
    passes: in which thread each ran, and with how many threads.
    encoded_in: the names of the threads that encoded, in order.
    hold: makes passes wait for `release`; `entered` is set when one has begun.
    on_run: called in the model thread at the end of each pass; may raise.
    """

    def __init__(self, *, threads: int = 1, on_run: Callable[[], None] = lambda: None) -> None:
        self.threads = threads
        self.batches: list[list[int]] = []
        self.passes: list[tuple[int, int]] = []
        self.encoded_in: list[str] = []
        self.failing: set[int] = set()
        self.on_run = on_run
        self.entered = threading.Event()
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        self.entered.clear()
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def has_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, PATIENCE_SECONDS)

    def encode(self, task: Task) -> FakeEncoded:
        self.encoded_in.append(threading.current_thread().name)
        if isinstance(task, Decode):
            return FakeEncoded(task, 0, result=DecodeResult(text=str(task.ids)))
        if not task.text:
            raise EmptyInput("the text is empty", field="inputs")
        assert isinstance(task.text, str)
        return FakeEncoded(task, len(task.text.split()))

    def run(self, batch: Sequence[FakeEncoded], *, threads: int) -> Sequence[Result | ServiceError]:
        numbers = [number_of(item.task) for item in batch]
        self.batches.append(numbers)
        self.passes.append((threading.get_ident(), threads))
        self.entered.set()
        assert self._open.wait(PATIENCE_SECONDS)
        self.on_run()
        return [
            BackendFailure("the forward pass failed") if number in self.failing else result_of(item.task)
            for item, number in zip(batch, numbers, strict=True)
        ]


@asynccontextmanager
async def running_batcher(
    engine: FakeEngine,
    *,
    max_concurrent_requests: int = 512,
    max_queue_tokens: int = 100_000,
    max_batch_tokens: int = 1_000,
    metrics: Metrics | None = None,
    clock: Callable[[], float] | None = None,
    on_failure: Callable[[BaseException], None] | None = None,
    pass_timeout_seconds: float = PATIENCE_SECONDS,
) -> AsyncIterator[Batcher[FakeEncoded]]:
    """A started batcher, drained at the end."""
    batcher = Batcher(
        engine,
        limits=QueueLimits(
            max_concurrent_requests=max_concurrent_requests,
            max_queue_tokens=max_queue_tokens,
            max_batch_tokens=max_batch_tokens,
        ),
        metrics=metrics or Metrics(),
        on_failure=on_failure,
        pass_timeout_seconds=pass_timeout_seconds,
        clock=clock or FakeClock(),
    )
    await batcher.start()
    try:
        yield batcher
    finally:
        engine.release()
        await batcher.drain(timeout_seconds=PATIENCE_SECONDS)
