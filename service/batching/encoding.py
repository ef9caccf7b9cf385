"""Tasks to ids without holding up the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic

from service.batching.protocol import BatchEngine, EncodedT
from service.batching.submission import Skipped
from service.errors import BackendFailure, DeadlinePassed, ServiceError, Unhealthy
from service.tasks import Decode, FillMask, FillNextMask, NextSentence, Task

logger = logging.getLogger(__name__)

# 1.4 ms of tokenization of plain text, 4.4 of other: what one turn of the event loop may cost, and enough to be worth a
# hop to a thread.
CHUNK_CHARACTERS = 8_192

# A call costs as much as so many characters, however short its text.
CALL_CHARACTERS = 100

# The same for looking up a target.
TARGET_CHARACTERS = 25

# And for turning an id into text.
ID_CHARACTERS = 9

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

    async def encode(
        self, tasks: Sequence[Task], *, deadline: float | None, all_or_nothing: bool
    ) -> list[Encoded[EncodedT]]:
        """One outcome per task, in order.

        Args:
            deadline: on the clock; tasks whose turn comes later get `DeadlinePassed`.
            all_or_nothing: tasks after one that was refused get `Skipped`.

        Raises:
            Unhealthy: closed meanwhile.
        """
        if sum(costs(tasks)) <= CHUNK_CHARACTERS:
            return self._encode(tasks, all_or_nothing)
        loop = asyncio.get_running_loop()
        encoded: list[Encoded[EncodedT]] = []
        for chunk in chunks(tasks):
            if self._closed:
                raise Unhealthy("the service is shutting down")
            if deadline is not None and self._clock() >= deadline:
                encoded += [_refused(DeadlinePassed("the deadline passed during tokenization")) for _ in chunk]
            elif all_or_nothing and encoded and isinstance(encoded[-1].outcome, ServiceError):
                encoded += [_refused(Skipped()) for _ in chunk]
            else:
                encoded += await loop.run_in_executor(self._threads, self._encode, chunk, all_or_nothing)
        return encoded

    def close(self) -> None:
        """Let the threads end after what they have; does not wait for them."""
        self._closed = True
        self._threads.shutdown(wait=False)

    def _encode(self, tasks: Sequence[Task], all_or_nothing: bool) -> list[Encoded[EncodedT]]:
        encoded: list[Encoded[EncodedT]] = []
        for task in tasks:
            one = self._encode_one(task)
            encoded.append(one)
            if all_or_nothing and isinstance(one.outcome, ServiceError):
                break
        return encoded + [_refused(Skipped()) for _ in tasks[len(encoded) :]]

    def _encode_one(self, task: Task) -> Encoded[EncodedT]:
        outcome: EncodedT | ServiceError
        started = self._clock()
        try:
            outcome = self._engine.encode(task)
        except ServiceError as error:
            outcome = error
        except Exception:
            logger.exception("an item could not be tokenized")
            outcome = BackendFailure("the tokenizer failed on this item")
        return Encoded(outcome=outcome, seconds=self._clock() - started)


def _refused(error: ServiceError) -> Encoded[Any]:
    return Encoded(outcome=error, seconds=0.0)


def costs(tasks: Sequence[Task]) -> Iterator[int]:
    """How many characters there are to tokenize of each task, the call itself included.

    Targets, or a first half, that neighbours share are looked up once, and a text that is known already not again.
    """
    targets, first_half = None, None
    for task in tasks:
        cost = CALL_CHARACTERS
        match task:
            case Decode():
                cost += ID_CHARACTERS * len(task.ids)
            case NextSentence():
                cost += len(task.text_pair) + (0 if task.text is first_half else len(task.text))
                first_half = task.text
            case FillNextMask(encoding=encoding) if encoding is not None and None in task.filled:
                pass
            case _:
                cost += len(task.text)
        if isinstance(task, FillMask) and task.targets is not None and task.targets is not targets:
            targets = task.targets
            cost += sum(TARGET_CHARACTERS + len(target) for target in targets)
        yield cost


def chunks(tasks: Sequence[Task]) -> Iterator[Sequence[Task]]:
    """Runs of tasks, each of `CHUNK_CHARACTERS` at most or of a single longer task."""
    start = 0
    size = 0
    for position, length in enumerate(costs(tasks)):
        if size + length > CHUNK_CHARACTERS and position > start:
            yield tasks[start:position]
            start = position
            size = 0
        size += length
    yield tasks[start:]
