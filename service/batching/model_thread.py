"""A thread that runs the model."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from service.batching.protocol import BatchEngine, EncodedT
from service.errors import ServiceError
from service.tasks import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What came of one call of `BatchEngine.run`: its results or what it raised, and when, on the batcher's clock."""

    outcome: Sequence[Result | ServiceError] | Exception
    started: float
    finished: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[EncodedT]):
    """A batch to run.

    threads: of the CPU.
    on_end: called on the event loop, whatever came of it, unless the thread dies.
    following: called in the model thread after a pass that did not raise, before `on_end`: what to go on with at once.
    """

    batch: Sequence[EncodedT]
    threads: int
    on_end: Callable[[Pass], None]
    following: Callable[[], Job[EncodedT] | None]


class ModelThread(Generic[EncodedT]):
    """Runs batches one after the other and gives each `Pass` back to the event loop that started the thread.

    A queue and `call_soon_threadsafe` alone: half of the hop's cost with an executor and its two futures.

    Args:
        on_death: called on the event loop if the thread ends without `stop`.
    """

    def __init__(
        self,
        engine: BatchEngine[EncodedT],
        *,
        clock: Callable[[], float],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[Job[EncodedT] | None] = queue.SimpleQueue()
        # A daemon, so that a pass that never ends can't keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def run(self, job: Job[EncodedT]) -> None:
        """Hand over a batch, and those that follow it."""
        self._inbox.put(job)

    def stop(self) -> None:
        """End the thread after the batches handed over so far; does not wait for it."""
        self._inbox.put(None)

    def join(self, *, timeout_seconds: float) -> None:
        """Wait for the thread's end, at most so long; blocks."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            while (job := self._inbox.get()) is not None:
                while job is not None:  # none is kept alive until the next one comes
                    job = self._serve(job)
        except BaseException as death:
            self._call_on_loop(self._on_death, death)

    def _serve(self, job: Job[EncodedT]) -> Job[EncodedT] | None:
        """Run a batch and return the one that follows."""
        following = None
        outcome: Sequence[Result | ServiceError] | Exception
        started = self._clock()
        try:
            outcome = self._engine.run(job.batch, threads=job.threads)
        except Exception as error:
            outcome = error
        finished = self._clock()
        if not isinstance(outcome, Exception):
            following = job.following()
        self._call_on_loop(job.on_end, Pass(outcome=outcome, started=started, finished=finished))
        return following

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        # After a drain that timed out the loop may be closed before the last pass ends; nobody waits for it then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)
