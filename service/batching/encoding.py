"""Tasks to ids without holding up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic

from service.batching.protocol import BatchEngine, EncodedT
from service.errors import ServiceError, Unhealthy
from service.tasks import NextSentence, Task

# About 3 ms of tokenization: what one turn of the event loop may cost, and enough to be worth a hop to a thread.
CHUNK_CHARACTERS = 8_192

# A call costs as much as so many characters, however short its text.
CALL_CHARACTERS = 100

# Tokenization must not take the cores from the passes.
TOKENIZATION_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded(Generic[EncodedT]):
    """An encoded task, or the error that refused it, and how long that took."""

    outcome: EncodedT | ServiceError
    seconds: float


class Encoder(Generic[EncodedT]):
    """Encodes a request's tasks: on the event loop if they are short together, else chunk by chunk in threads."""

    def __init__(self, engine: BatchEngine[EncodedT], *, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._threads = ThreadPoolExecutor(max_workers=TOKENIZATION_THREADS, thread_name_prefix="encode")
        self._closed = False

    async def encode(self, tasks: Sequence[Task]) -> list[Encoded[EncodedT]]:
        """One outcome per task, in order.

        Raises:
            Unhealthy: closed meanwhile.
        """
        if sum(map(characters, tasks)) <= CHUNK_CHARACTERS:
            return self._encode(tasks)
        loop = asyncio.get_running_loop()
        encoded: list[Encoded[EncodedT]] = []
        for chunk in chunks(tasks):
            if self._closed:
                raise Unhealthy("the service is shutting down")
            encoded += await loop.run_in_executor(self._threads, self._encode, chunk)
        return encoded

    def close(self) -> None:
        """Let the threads end after what they have; does not wait for them."""
        self._closed = True
        self._threads.shutdown(wait=False)

    def _encode(self, tasks: Sequence[Task]) -> list[Encoded[EncodedT]]:
        return [self._encode_one(task) for task in tasks]

    def _encode_one(self, task: Task) -> Encoded[EncodedT]:
        outcome: EncodedT | ServiceError
        started = self._clock()
        try:
            outcome = self._engine.encode(task)
        except ServiceError as error:
            outcome = error
        return Encoded(outcome=outcome, seconds=self._clock() - started)


def characters(task: Task) -> int:
    """How much there is to tokenize, the call itself included."""
    if isinstance(task, NextSentence):
        return CALL_CHARACTERS + len(task.text) + len(task.text_pair)
    return CALL_CHARACTERS + len(task.text)


def chunks(tasks: Sequence[Task]) -> Iterator[Sequence[Task]]:
    """Runs of tasks, each of `CHUNK_CHARACTERS` at most or of a single longer task."""
    start = 0
    size = 0
    for position, task in enumerate(tasks):
        length = characters(task)
        if size + length > CHUNK_CHARACTERS and position > start:
            yield tasks[start:position]
            start = position
            size = 0
        size += length
    yield tasks[start:]
