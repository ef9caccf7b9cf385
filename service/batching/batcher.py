"""Many requests in, few passes out: one queue, one loop task, a model thread or several.

A batch is whatever waited while the last one ran; nothing is ever held back in the hope of more.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import time
from collections.abc import Callable, Sequence
from typing import Generic

from service.batching.admission_control import AdmissionControl
from service.batching.encoding import Encoder
from service.batching.model_thread import ModelThread
from service.batching.pass_loop import PassLoop
from service.batching.policy import DrainRate, QueueLimits, WaitingQueue
from service.batching.protocol import BatchEngine, EncodedT
from service.batching.submission import Entry, Item, Rounds, Skipped, Submission, one_round
from service.errors import DeadlinePassed, ServiceError, Unhealthy
from service.observability.metrics import Metrics
from service.tasks import Answer, Task, Timing

logger = logging.getLogger(__name__)


class BatcherState(enum.Enum):
    """The life of a batcher; the value says to a client why nothing is accepted."""

    STARTING = "the service is starting"
    ACCEPTING = "the service is ready"
    DRAINING = "the service is shutting down"
    STOPPED = "the service has shut down"
    FAILED = "the model has failed and the service must be restarted"


class Batcher(Generic[EncodedT]):
    """Puts the tasks of all requests into shared passes and gives each request its own answers.

    Used on one event loop. `start` before the first `submit`, `drain` at the end.

    Args:
        pass_timeout_seconds: a pass that takes longer will never end.
        on_failure: called once, on the event loop, if a model thread or the loop task dies, the engine says that its
            device is beyond recovery, or a pass does not end. All that waited has been answered with `Unhealthy` by
            then.
        clock: monotonic seconds, from any thread; deadlines are on it.
    """

    def __init__(
        self,
        engine: BatchEngine[EncodedT],
        *,
        limits: QueueLimits,
        metrics: Metrics,
        pass_timeout_seconds: float,
        on_failure: Callable[[BaseException], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._on_failure = on_failure
        self._clock = clock
        self._encoder = Encoder(engine, clock=clock)
        self._queue: WaitingQueue[Item[EncodedT]] = WaitingQueue(limits)
        drain_rate = DrainRate()
        self._admission = AdmissionControl(self._queue, limits=limits, drain_rate=drain_rate, metrics=metrics)
        self._pass_loop = PassLoop(
            self._queue,
            max_batch_tokens=limits.max_batch_tokens,
            drain_rate=drain_rate,
            metrics=metrics,
            clock=clock,
            pass_timeout_seconds=pass_timeout_seconds,
        )
        self._state = BatcherState.STARTING
        self._submissions: set[Submission[EncodedT]] = set()
        self._open_requests = 0
        self._all_answered = asyncio.Event()
        self._lanes: list[ModelThread[EncodedT]] = []
        self._loop_task: asyncio.Task[None] | None = None

    @property
    def state(self) -> BatcherState:
        return self._state

    @property
    def healthy(self) -> bool:
        """Are new requests accepted, as far as there is room?"""
        return self._state is BatcherState.ACCEPTING

    async def start(self) -> None:
        """Start the model threads and the loop task."""
        assert self._state is BatcherState.STARTING
        self._lanes = [
            ModelThread(self._engine, clock=self._clock, on_death=self._fail) for _ in range(self._engine.threads)
        ]
        self._loop_task = asyncio.create_task(self._pass_loop.run(self._lanes), name="batcher")
        self._loop_task.add_done_callback(self._loop_task_ended)
        self._state = BatcherState.ACCEPTING

    def check_admission(self, *, client: str, deadline: float | None, items: int = 1) -> None:
        """Refuse so many items at once if they can't be taken on, whatever they cost.

        Costs next to nothing: the place to ask before a body is read or a text is tokenized.

        Raises:
            Unhealthy: not started, draining, or dead.
            PayloadTooLarge: more items than could ever be accepted.
            Overloaded: no room now, or by all that is known no answer before the deadline.
        """
        self._require_state(BatcherState.ACCEPTING)
        self._admission.require_room(items=items, tokens=items)  # an item costs 1 token at least
        if deadline is not None:
            self._admission.require_time(items=items, client=client, seconds_left=deadline - self._clock())

    async def submit(
        self, tasks: Sequence[Task], *, client: str, deadline: float | None, all_or_nothing: bool = False
    ) -> list[Entry]:
        """Answer a request's tasks, in their order; an item's fault is that item's entry.

        Cancelling the call takes its waiting items out of the queue.

        Args:
            client: whose turn it is; clients share the passes evenly.
            deadline: when an item that still waits gets `DeadlinePassed`, on the batcher's clock.
            all_or_nothing: one refused task refuses the request: the others are not run and get `Skipped`.

        Raises:
            Unhealthy, PayloadTooLarge, Overloaded: nothing of the request was accepted.
        """
        return await self.submit_rounds(
            one_round(tasks), client=client, deadline=deadline, all_or_nothing=all_or_nothing
        )

    async def submit_rounds(
        self, rounds: Rounds, *, client: str, deadline: float | None, all_or_nothing: bool = False
    ) -> list[Entry]:
        """Answer a request that asks for more when it has seen the answers to what it asked first.

        It is accepted with its first round: the later ones are refused neither in a full queue nor in a drain. All else
        is as in `submit`, and holds for each round.

        Args:
            rounds: gives tasks, takes their entries in the same order, and so on; returns what the request comes to.

        Raises:
            Unhealthy, PayloadTooLarge, Overloaded: nothing of the request was accepted.
            PayloadTooLarge: also for a later round that could never be accepted.
        """
        tasks = next(rounds)
        self.check_admission(client=client, deadline=deadline, items=len(tasks))
        self._open_requests += 1
        accepted = False
        try:
            while True:
                entries = await self._round(
                    tasks, client=client, deadline=deadline, all_or_nothing=all_or_nothing, accepted=accepted
                )
                accepted = True
                try:
                    tasks = rounds.send(entries)
                except StopIteration as end:
                    answered: list[Entry] = end.value
                    return answered
        finally:
            self._open_requests -= 1
            if not self._open_requests:
                self._all_answered.set()

    async def _round(
        self, tasks: Sequence[Task], *, client: str, deadline: float | None, all_or_nothing: bool, accepted: bool
    ) -> list[Entry]:
        submission: Submission[EncodedT] = Submission(size=len(tasks), received=self._clock())
        self._submissions.add(submission)
        try:
            items = await self._encode(tasks, submission=submission, deadline=deadline, all_or_nothing=all_or_nothing)
            items = self._settle_without_pass(items)
            if items:
                self._admit(items, submission=submission, client=client, deadline=deadline, accepted=accepted)
                await submission.settled
            return submission.entries()
        except asyncio.CancelledError:
            self._cancel(submission)
            raise
        finally:
            self._submissions.discard(submission)

    async def drain(self, *, timeout_seconds: float) -> None:
        """Refuse new requests, finish the accepted ones, stop. What is left at the timeout gets `Unhealthy`.

        Returns when the model threads have ended, or at the timeout; after a failure without a wait for them.
        """
        now = asyncio.get_running_loop().time
        timeout_at = now() + timeout_seconds
        if self._state in (BatcherState.STARTING, BatcherState.ACCEPTING):
            self._state = BatcherState.DRAINING
        if self._open_requests:
            self._all_answered.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_answered.wait(), timeout_seconds)
        await self._stop(join_timeout_seconds=max(0.0, timeout_at - now()))

    # Into the queue

    async def _encode(
        self,
        tasks: Sequence[Task],
        *,
        submission: Submission[EncodedT],
        deadline: float | None,
        all_or_nothing: bool,
    ) -> list[Item[EncodedT]]:
        """The items to queue; what was refused is settled."""
        for task in tasks:
            self._metrics.task_submitted(task)
        items = []
        outcomes = await self._encoder.encode(tasks, deadline=deadline, all_or_nothing=all_or_nothing)
        for position, encoded in enumerate(outcomes):
            if isinstance(encoded.outcome, ServiceError):
                submission.settle(position, encoded.outcome)
                continue
            item = Item(
                submission=submission,
                position=position,
                task=tasks[position],
                encoded=encoded.outcome,
                compute_tokens=encoded.outcome.compute_tokens,
                answer_characters=encoded.outcome.answer_characters,
                tokenization_seconds=encoded.seconds,
            )
            if item.encoded.result is None:
                self._metrics.task_encoded(tokens=item.compute_tokens)
            items.append(item)
        late = sum(isinstance(encoded.outcome, DeadlinePassed) for encoded in outcomes)
        if late:
            self._metrics.items_dropped("deadline", items=late)
        if all_or_nothing and len(items) < len(tasks):
            submission.abandon(Skipped)
            return []
        return items

    def _settle_without_pass(self, items: list[Item[EncodedT]]) -> list[Item[EncodedT]]:
        """Answer what takes no pass; the others are left."""
        self._admission.require_short_answers(items)
        waiting = []
        for item in items:
            result = item.encoded.result
            if result is None:
                waiting.append(item)
                continue
            timing = Timing(tokenization=item.tokenization_seconds)
            item.submission.settle(item.position, Answer(result=result, timing=timing, compute_tokens=0))
        return waiting

    def _admit(
        self,
        items: list[Item[EncodedT]],
        *,
        submission: Submission[EncodedT],
        client: str,
        deadline: float | None,
        accepted: bool,
    ) -> None:
        self._require_state(BatcherState.ACCEPTING, BatcherState.DRAINING)
        tokens = sum(item.compute_tokens for item in items)
        self._admission.require_room(items=len(items), tokens=tokens, accepted=accepted)
        submission.admitted = self._clock()
        submission.ticket = self._queue.add(items, client=client, deadline=deadline)
        self._queue_changed()
        self._pass_loop.wake()

    def _require_state(self, *states: BatcherState) -> None:
        if self._state not in states:
            self._metrics.request_refused("unhealthy")
            raise Unhealthy(self._state.value)

    def _cancel(self, submission: Submission[EncodedT]) -> None:
        self._metrics.request_cancelled()
        if submission.ticket is not None:
            dropped = self._queue.cancel(submission.ticket)
            self._metrics.items_dropped("cancelled", items=len(dropped))
            self._queue_changed()

    def _queue_changed(self) -> None:
        self._metrics.queue_changed(items=self._queue.waiting_items, tokens=self._queue.waiting_tokens)

    # The end

    async def _stop(self, *, join_timeout_seconds: float) -> None:
        has_failed = self._state is BatcherState.FAILED
        if not has_failed:
            self._state = BatcherState.STOPPED
        self._end()
        if self._loop_task is not None:
            await asyncio.wait([self._loop_task])
        if not has_failed:  # else nobody waits for a pass any more, and one that hangs would never end
            await asyncio.to_thread(self._join, timeout_seconds=join_timeout_seconds)

    def _join(self, *, timeout_seconds: float) -> None:
        end = time.monotonic() + timeout_seconds
        for lane in self._lanes:
            lane.join(timeout_seconds=max(0.0, end - time.monotonic()))

    def _fail(self, error: BaseException) -> None:
        if self._state in (BatcherState.STOPPED, BatcherState.FAILED):
            return
        self._state = BatcherState.FAILED
        logger.critical("%s", self._state.value, exc_info=error)
        self._end()
        if self._on_failure is not None:
            self._on_failure(error)

    def _end(self) -> None:
        """Answer what is left with `Unhealthy` and let the task and the threads go."""
        self._pass_loop.close()
        self._metrics.items_dropped("unhealthy", items=len(self._queue.clear()))
        self._queue_changed()
        for submission in self._submissions:
            if submission.ticket is not None:  # the others find out when they are encoded
                submission.abandon(lambda: Unhealthy(self._state.value))
        self._encoder.close()
        if self._loop_task is not None:
            self._loop_task.cancel()
        for lane in self._lanes:
            lane.stop()

    def _loop_task_ended(self, task: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        assert error is not None
        self._fail(error)
