"""The model thread keeps nothing alive and outlives a closed event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Sequence

from service.batching.model_thread import Job, ModelThread, Pass
from service.batching.protocol import BatchEngine
from service.errors import ServiceError
from service.tasks import Result, Task
from tests.service.batching.fake_engine import FakeEngine, embed
from tests.service.fake_engine import PATIENCE_SECONDS, FakeEncoded


class Encoded(FakeEncoded):
    """Without slots: can be weakly referenced."""


class IdleEngine(BatchEngine[Encoded]):
    threads = 1

    def encode(self, task: Task) -> Encoded:
        return Encoded(task, 1)

    def run(self, batch: Sequence[Encoded], *, threads: int) -> Sequence[Result | ServiceError]:
        return [ServiceError(f"{len(batch)} items, {threads} threads")]


def fail_if_called(result: Pass) -> None:
    raise AssertionError(result)


def fail_if_called_too() -> None:
    raise AssertionError


def ignore_death(error: BaseException) -> None:
    raise AssertionError from error


def test_a_finished_batch_is_not_kept_alive() -> None:
    async def main() -> None:
        engine = IdleEngine()
        thread = ModelThread(engine, clock=lambda: 0.0, on_death=ignore_death)
        item = engine.encode(embed(1))
        alive = weakref.ref(item)
        ended: asyncio.Future[Pass] = asyncio.get_running_loop().create_future()
        thread.run(Job(batch=[item], threads=1, on_end=ended.set_result, following=lambda: None))
        await ended
        del item
        for _ in range(100):  # the thread may still be on its way back to its queue
            if alive() is None:
                break
            gc.collect()
            await asyncio.sleep(0.001)
        assert alive() is None
        thread.stop()
        thread.join(timeout_seconds=PATIENCE_SECONDS)

    asyncio.run(main())


def test_a_pass_that_ends_after_the_event_loop_ends_quietly() -> None:
    engine = FakeEngine()

    async def main() -> ModelThread[FakeEncoded]:
        engine.hold()
        thread = ModelThread(engine, clock=lambda: 0.0, on_death=ignore_death)
        thread.run(Job(batch=[engine.encode(embed(1))], threads=1, on_end=fail_if_called, following=lambda: None))
        await engine.has_entered()
        thread.stop()
        return thread

    thread = asyncio.run(main())
    engine.release()
    thread.join(timeout_seconds=PATIENCE_SECONDS)
    assert "model" not in [running.name for running in threading.enumerate()]


def test_a_pass_that_raised_is_not_followed_and_others_are_before_their_end_is_told() -> None:
    async def main() -> None:
        told: list[str] = []
        all_told = asyncio.Event()

        def fail() -> None:
            told.append("raised")
            raise ArithmeticError

        engine = FakeEngine()
        thread = ModelThread(engine, clock=lambda: 0.0, on_death=ignore_death)
        last = Job(
            batch=[engine.encode(embed(2))], threads=1, on_end=lambda _: all_told.set(), following=fail_if_called_too
        )

        def following() -> Job[FakeEncoded]:
            told.append("following")
            engine.on_run = fail
            return last

        thread.run(
            Job(
                batch=[engine.encode(embed(1))],
                threads=1,
                on_end=lambda _: told.append("ended"),
                following=following,
            )
        )
        await asyncio.wait_for(all_told.wait(), PATIENCE_SECONDS)
        assert told[0] == "following"
        assert sorted(told) == ["ended", "following", "raised"]
        thread.stop()
        thread.join(timeout_seconds=PATIENCE_SECONDS)

    asyncio.run(main())
