"""From the queue to the model threads, and from their results to the requests that wait."""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic

from service.batching.model_thread import Job, ModelThread, Pass
from service.batching.policy import Batch, DrainRate, PassSize, WaitingQueue
from service.batching.protocol import EncodedT
from service.batching.submission import Item
from service.errors import BackendFailure, DeadlinePassed, ServiceError, Unhealthy
from service.observability.metrics import Metrics
from service.tasks import Answer, PassRecord, Result, Timing

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Running(Generic[EncodedT]):
    """A pass, from when its batch was taken.

    watchdog: from when the event loop knows of it.
    following: what the lane went on with.
    """

    batch: Batch[Item[EncodedT]]
    lane: int
    threads: int
    watchdog: asyncio.TimerHandle | None = None
    following: _Running[EncodedT] | None = None


class PassLoop(Generic[EncodedT]):
    """Runs passes while anything waits: one at a time with all threads, or one a thread.

    A thread that has ended its pass takes the next batch itself, since the event loop may be busy with answers. All
    else happens on the event loop.
    """

    def __init__(
        self,
        queue: WaitingQueue[Item[EncodedT]],
        *,
        max_batch_tokens: int,
        drain_rate: DrainRate,
        metrics: Metrics,
        clock: Callable[[], float],
        pass_timeout_seconds: float,
    ) -> None:
        self._queue = queue
        self._max_batch_tokens = max_batch_tokens
        self._drain_rate = drain_rate
        self._metrics = metrics
        self._clock = clock
        self._pass_timeout_seconds = pass_timeout_seconds
        self._hangs = False
        self._is_closed = False
        self._lanes: Sequence[ModelThread[EncodedT]] = ()
        self._free_lanes: list[int] = []
        self._idle_threads = 0
        self._ended: list[tuple[_Running[EncodedT], Pass]] = []
        self._something_to_do = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = math.inf

    def wake(self) -> None:
        """Something was put into the queue."""
        self._something_to_do.set()
        self._set_timer()

    async def run(self, lanes: Sequence[ModelThread[EncodedT]]) -> None:
        """Until cancelled.

        Raises:
            Unhealthy: the engine said that its device is beyond recovery, or a pass does not end.
        """
        self._lanes = lanes
        self._free_lanes = list(range(len(lanes)))
        self._idle_threads = len(lanes)
        try:
            while True:
                await self._something_to_do.wait()
                self._something_to_do.clear()
                if self._hangs:
                    raise Unhealthy(f"a pass did not end within {self._pass_timeout_seconds:g} s")
                self._turn()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _turn(self) -> None:
        """When it has returned, nothing holds the passes that have ended: not while nothing waits, either."""
        ended, self._ended = self._ended, []
        for running, result in ended:
            self._take_back(running, result)
        # The model works on the next batches while the answers of the last ones go out.
        self._start_passes()
        for running, result in ended:
            self._deliver(running, result)

    def close(self) -> None:
        """From now on nothing is told: who waited has been answered otherwise."""
        self._is_closed = True

    def _pass_ended(self, running: _Running[EncodedT], result: Pass) -> None:
        if running.watchdog is not None:
            running.watchdog.cancel()
        if self._is_closed:
            return
        following, running.following = running.following, None
        if following is None or not self._begin(following):
            insort(self._free_lanes, running.lane)
            self._idle_threads += running.threads
        self._ended.append((running, result))
        self._something_to_do.set()

    def _pass_hangs(self) -> None:
        self._hangs = True
        self._something_to_do.set()

    def _take_back(self, running: _Running[EncodedT], result: Pass) -> None:
        self._queue.finished(running.batch)
        if isinstance(result.outcome, Unhealthy):
            raise result.outcome

    def _start_passes(self) -> None:
        while self._idle_threads and self._queue.waiting_items:
            self._start_pass(self._queue.pass_size(threads=len(self._lanes), idle=self._idle_threads))

    def _start_pass(self, size: PassSize) -> None:
        batch = self._queue.take_batch(now=self._clock(), max_tokens=size.max_tokens)
        # The first that is free: only the first of all ever has several threads.
        running = _Running(batch=batch, lane=self._free_lanes[0], threads=size.threads)
        if self._begin(running):
            self._free_lanes.pop(0)
            self._idle_threads -= running.threads
            self._lanes[running.lane].run(self._job(running))

    def _begin(self, running: _Running[EncodedT]) -> bool:
        """A batch was taken: tell of it, and watch it. False if all of it was late."""
        batch = running.batch
        self._metrics.queue_changed(items=self._queue.waiting_items, tokens=self._queue.waiting_tokens)
        self._settle_late(batch.late)
        if not batch.items:
            return False
        self._metrics.batch_started(items=len(batch.items), tokens=batch.tokens)
        running.watchdog = asyncio.get_running_loop().call_later(self._pass_timeout_seconds, self._pass_hangs)
        return True

    def _job(self, running: _Running[EncodedT]) -> Job[EncodedT]:
        return Job(
            batch=[item.encoded for item in running.batch.items],
            threads=running.threads,
            on_end=partial(self._pass_ended, running),
            following=partial(self._following, running),
        )

    def _following(self, running: _Running[EncodedT]) -> Job[EncodedT] | None:
        """In the model thread: what it goes on with, as long as that is a pass like the last."""
        if running.threads > 1 or not self._queue.waiting_items:
            return None
        size = self._queue.pass_size(threads=len(self._lanes), idle=self._idle_threads + 1)
        if size.threads > 1:
            return None
        batch = self._queue.take_batch(now=self._clock(), max_tokens=size.max_tokens)
        running.following = _Running(batch=batch, lane=running.lane, threads=1)
        return self._job(running.following) if batch.items else None

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

    def _deliver(self, running: _Running[EncodedT], result: Pass) -> None:
        batch = running.batch
        seconds = result.finished - result.started
        share = running.threads / len(self._lanes)  # while the queue is long the other threads are busy too
        self._drain_rate.observe(
            tokens=batch.tokens, seconds=seconds * share, is_full=batch.tokens >= self._max_batch_tokens * share / 2
        )
        self._metrics.batch_finished(compute_seconds=seconds)
        record = PassRecord(
            items=len(batch.items), tokens=batch.tokens, started=result.started, finished=result.finished
        )
        for item, outcome in zip(batch.items, _outcomes(result, count=len(batch.items)), strict=True):
            if isinstance(outcome, ServiceError):
                self._metrics.task_failed()
                item.submission.settle(item.position, outcome)
            else:
                item.submission.settle(item.position, self._answer(item, outcome, record))

    def _answer(self, item: Item[EncodedT], outcome: Result, record: PassRecord) -> Answer:
        submission = item.submission
        timing = Timing(
            tokenization=item.tokenization_seconds,
            queue=record.started - submission.admitted,
            inference=record.finished - record.started,
        )
        self._metrics.task_answered(item.task, timing=timing, total_seconds=record.finished - submission.received)
        return Answer(result=outcome, timing=timing, compute_tokens=item.compute_tokens, passes=(record,))


def _outcomes(result: Pass, *, count: int) -> Sequence[Result | ServiceError]:
    outcome = result.outcome
    if isinstance(outcome, Exception):
        logger.error("a pass over %d items failed", count, exc_info=outcome)
    elif len(outcome) != count:
        logger.error("the engine gave %d results for %d items", len(outcome), count)
    else:
        return outcome
    return [BackendFailure("the forward pass failed") for _ in range(count)]
