"""The loop over passes by itself, in the moments that a batcher comes to only by chance."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from service.batching.model_thread import Job, ModelThread, Pass
from service.batching.pass_loop import PassLoop
from service.batching.policy import DrainRate, QueueLimits, WaitingQueue
from service.batching.submission import Item, Submission
from service.observability.metrics import Metrics
from service.tasks import Embed
from tests.service.batching.fake_engine import FakeClock, FakeEngine
from tests.service.fake_engine import FakeEncoded


class RecordingLane:
    """A model thread that runs nothing."""

    def __init__(self) -> None:
        self.jobs: list[Job[FakeEncoded]] = []

    def run(self, job: Job[FakeEncoded]) -> None:
        self.jobs.append(job)


def waiting(queue: WaitingQueue[Item[FakeEncoded]], engine: FakeEngine, text: str) -> Submission[FakeEncoded]:
    """A request of one text that waits."""
    submission: Submission[FakeEncoded] = Submission(size=1, received=0.0)
    task = Embed(text=text)
    item = Item(
        submission=submission,
        position=0,
        task=task,
        encoded=engine.encode(task),
        compute_tokens=1,
        answer_characters=1,
        tokenization_seconds=0.0,
    )
    submission.ticket = queue.add([item], client="x", deadline=None)
    return submission


def test_a_pass_that_a_thread_went_on_with_is_not_told_of_after_the_end() -> None:
    async def scenario() -> None:
        clock, engine, metrics, lane = FakeClock(), FakeEngine(), Metrics(), RecordingLane()
        limits = QueueLimits(max_concurrent_requests=9, max_queue_tokens=9, max_batch_tokens=1)
        queue: WaitingQueue[Item[FakeEncoded]] = WaitingQueue(limits)
        passes = PassLoop(
            queue, max_batch_tokens=1, drain_rate=DrainRate(), metrics=metrics, clock=clock, pass_timeout_seconds=60
        )
        loop = asyncio.create_task(passes.run([cast(ModelThread[Any], lane)]))
        submissions = [waiting(queue, engine, text) for text in ("1", "2")]
        passes.wake()
        while not lane.jobs:
            await asyncio.sleep(0)
        [job] = lane.jobs
        assert job.following() is not None  # the thread has ended its pass and begun the next one
        passes.close()  # the batcher's end, before the event loop hears of it
        job.on_end(Pass(outcome=engine.run(job.batch, threads=1), started=clock(), finished=clock()))
        await asyncio.sleep(0)
        assert "te_batch_next_size_count 1.0" in metrics.render()[0].decode()
        assert not any(submission.settled.done() for submission in submissions)
        loop.cancel()

    asyncio.run(scenario())
