"""Large bodies and answers are read and written in a thread: the event loop must answer others meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from service.batching.submission import Entry
from service.errors import ServiceError
from service.tasks import (
    DecodeResult,
    EmbedAllResult,
    EmbedResult,
    EmbedSparseResult,
    FilledText,
    FillMaskResult,
    JointFillResult,
    NextMaskResult,
    NextSentenceResult,
    Result,
    TokenizeResult,
)

LARGE_CHARACTERS = 200_000
"""To make or to take apart so much JSON takes about 2 ms: more than a hop to a thread."""

# What values take with the names of their fields, about.
_NUMBER = 12
_OBJECT = 100

MadeT = TypeVar("MadeT")


class Offload:
    """Runs what takes long in a thread, one thing at a time, so that memory is that of one."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def call(self, make: Callable[[], MadeT], *, characters: int) -> MadeT:
        """What `make` returns or raises, off the event loop if it is about so many characters of JSON."""
        if characters < LARGE_CHARACTERS:
            return make()
        async with self._turn:
            return await asyncio.to_thread(make)


def characters_of(answers: Sequence[Entry]) -> int:
    """How long the JSON of these answers is, about."""
    return sum(_OBJECT if isinstance(answer, ServiceError) else _characters(answer.result) for answer in answers)


def _characters(result: Result) -> int:
    match result:
        case EmbedResult():
            return _NUMBER * result.vector.size
        case EmbedAllResult():
            return _NUMBER * result.vectors.size
        case EmbedSparseResult():
            return 2 * _NUMBER * result.values.size
        case TokenizeResult():
            return _OBJECT * result.ids.size
        case DecodeResult():
            return len(result.text)
        case FillMaskResult():
            sequences = [len(one.sequence) for mask in result.masks for one in mask.predictions]
            return sum(sequences) + _OBJECT * len(sequences)
        case JointFillResult():
            return sum(len(one.sequence) + _OBJECT * len(one.token_ids) for one in result.predictions)
        case NextSentenceResult():
            return _OBJECT
        case NextMaskResult() | FilledText():
            raise AssertionError("is no answer")
