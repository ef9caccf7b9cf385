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
class _Job(Generic[EncodedT]):
    batch: Sequence[EncodedT]
    threads: int
    on_end: Callable[[Pass], None]


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
        self._inbox: queue.SimpleQueue[_Job[EncodedT] | None] = queue.SimpleQueue()
        # A daemon, so that a pass that never ends can't keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._thread.start()

    def run(self, batch: Sequence[EncodedT], *, threads: int, on_end: Callable[[Pass], None]) -> None:
        """Hand over a batch. `on_end` is called on the event loop, whatever came of it, unless the thread dies."""
        self._inbox.put(_Job(batch=batch, threads=threads, on_end=on_end))

    def stop(self) -> None:
        """End the thread after the batches handed over so far; does not wait for it."""
        self._inbox.put(None)

    def join(self, *, timeout_seconds: float) -> None:
        """Wait for the thread's end, at most so long; blocks."""
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            while True:
                job = self._inbox.get()
                if job is None:
                    return
                self._serve(job)
                del job  # or the batch would be kept alive until the next one comes
        except BaseException as death:
            self._call_on_loop(self._on_death, death)

    def _serve(self, job: _Job[EncodedT]) -> None:
        outcome: Sequence[Result | ServiceError] | Exception
        started = self._clock()
        try:
            outcome = self._engine.run(job.batch, threads=job.threads)
        except Exception as error:
            outcome = error
        self._call_on_loop(job.on_end, Pass(outcome=outcome, started=started, finished=self._clock()))

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        # After a drain that timed out the loop may be closed before the last pass ends; nobody waits for it then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)
