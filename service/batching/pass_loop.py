"""From the queue to the model thread, and from its results to the requests that wait."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from service.batching.model_thread import ModelThread, Pass
from service.batching.policy import Batch, DrainRate, WaitingQueue
from service.batching.protocol import EncodedT
from service.batching.submission import Item
from service.errors import BackendFailure, DeadlinePassed, ServiceError, Unhealthy
from service.observability.metrics import Metrics
from service.tasks import Answer, Result, Timing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running(Generic[EncodedT]):
    batch: Batch[Item[EncodedT]]
    result: asyncio.Future[Pass]


class PassLoop(Generic[EncodedT]):
    """Runs one pass after the other while anything waits."""

    def __init__(
        self,
        queue: WaitingQueue[Item[EncodedT]],
        *,
        drain_rate: DrainRate,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._drain_rate = drain_rate
        self._metrics = metrics
        self._clock = clock
        self._work_waits = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = math.inf

    def wake(self) -> None:
        """Something was put into the queue."""
        self._work_waits.set()
        self._set_timer()

    async def run(self, thread: ModelThread[EncodedT]) -> None:
        """Until cancelled.

        Raises:
            Unhealthy: the engine said that its device is beyond recovery.
        """
        try:
            while True:
                await self._work_waits.wait()
                self._work_waits.clear()
                await self._run_until_empty(thread)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _run_until_empty(self, thread: ModelThread[EncodedT]) -> None:
        running = self._start_batch(thread)
        while running is not None:
            result = await running.result
            self._queue.finished(running.batch)
            if isinstance(result.outcome, Unhealthy):
                raise result.outcome
            # The model works on the next batch while this one's answers go out.
            following = self._start_batch(thread)
            self._deliver(running.batch, result)
            running = following

    def _start_batch(self, thread: ModelThread[EncodedT]) -> _Running[EncodedT] | None:
        batch = self._queue.take_batch(now=self._clock())
        self._metrics.queue_changed(items=self._queue.waiting_items, tokens=self._queue.waiting_tokens)
        self._settle_late(batch.late)
        if not batch.items:
            return None
        self._metrics.batch_started(items=len(batch.items), tokens=batch.tokens)
        return _Running(batch=batch, result=thread.run([item.encoded for item in batch.items]))

    def _set_timer(self) -> None:
        """Late items are answered in time, however long the pass takes that runs then."""
        earliest = self._queue.earliest_deadline
        if earliest == self._timer_deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline = earliest
        if earliest < math.inf:
            delay_seconds = max(0.0, earliest - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._deadline_passed)

    def _deadline_passed(self) -> None:
        self._timer_deadline = math.inf
        late = self._queue.drop_late(now=self._clock())
        self._metrics.queue_changed(items=self._queue.waiting_items, tokens=self._queue.waiting_tokens)
        self._settle_late(late)
        self._set_timer()

    def _settle_late(self, late: Sequence[Item[EncodedT]]) -> None:
        if late:
            self._metrics.items_dropped("deadline", items=len(late))
        for item in late:
            item.submission.settle(item.position, DeadlinePassed("the deadline passed while the item waited"))

    def _deliver(self, batch: Batch[Item[EncodedT]], result: Pass) -> None:
        seconds = result.finished - result.started
        self._drain_rate.observe(tokens=batch.tokens, seconds=seconds)
        self._metrics.batch_finished(compute_seconds=seconds)
        for item, outcome in zip(batch.items, _outcomes(result, count=len(batch.items)), strict=True):
            if isinstance(outcome, ServiceError):
                self._metrics.task_failed()
                item.submission.settle(item.position, outcome)
            else:
                item.submission.settle(item.position, self._answer(item, outcome, result))

    def _answer(self, item: Item[EncodedT], outcome: Result, result: Pass) -> Answer:
        submission = item.submission
        timing = Timing(
            tokenization=item.tokenization_seconds,
            queue=result.started - submission.admitted,
            inference=result.finished - result.started,
        )
        self._metrics.task_answered(item.task, timing=timing, total_seconds=result.finished - submission.received)
        return Answer(result=outcome, timing=timing, compute_tokens=item.compute_tokens)


def _outcomes(result: Pass, *, count: int) -> Sequence[Result | ServiceError]:
    outcome = result.outcome
    if isinstance(outcome, Exception):
        logger.error("a pass over %d items failed", count, exc_info=outcome)
    elif len(outcome) != count:
        logger.error("the engine gave %d results for %d items", len(outcome), count)
    else:
        return outcome
    return [BackendFailure("the forward pass failed") for _ in range(count)]
