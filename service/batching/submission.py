"""A round of a request on its way through the queue, and the items that it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias

from service.batching.policy import Ticket
from service.batching.protocol import EncodedT
from service.errors import ServiceError
from service.tasks import Answer, Task

Entry: TypeAlias = Answer | ServiceError
"""What one task of a request comes to."""

Rounds: TypeAlias = Generator[Sequence[Task], Sequence[Entry], list[Entry]]
"""A request that asks several times: yields tasks, is sent their entries, and returns what it comes to."""


def one_round(tasks: Sequence[Task]) -> Rounds:
    """A request that asks once."""
    return [*(yield tasks)]


class Skipped(ServiceError):
    """The task was not run: another of its request was refused, and the request was to fail as a whole."""

    def __init__(self) -> None:
        super().__init__("another item of the request was refused")


class Submission(Generic[EncodedT]):
    """Collects the entries of one round of a request, each in its task's place. One future for all: `settled`."""

    __slots__ = ("_entries", "_open", "admitted", "received", "settled", "ticket")

    def __init__(self, *, size: int, received: float) -> None:
        self._entries: list[Entry | None] = [None] * size
        self._open = size
        self.received = received
        self.admitted = received
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ticket: Ticket[Item[EncodedT]] | None = None

    def settle(self, position: int, entry: Entry) -> None:
        """Put an entry in its place, once."""
        assert self._entries[position] is None
        self._entries[position] = entry
        self._open -= 1
        if not self._open and not self.settled.done():
            self.settled.set_result(None)

    def abandon(self, make_error: Callable[[], ServiceError]) -> None:
        """Settle all that is open with errors."""
        for position, entry in enumerate(self._entries):
            if entry is None:
                self.settle(position, make_error())

    def entries(self) -> list[Entry]:
        """All entries, in the order of the tasks; only when settled."""
        entries = [entry for entry in self._entries if entry is not None]
        assert len(entries) == len(self._entries)
        return entries


@dataclass(slots=True, eq=False, kw_only=True)
class Item(Generic[EncodedT]):
    """One encoded task that waits or runs."""

    submission: Submission[EncodedT]
    position: int
    task: Task
    encoded: EncodedT
    compute_tokens: int
    answer_characters: int
    tokenization_seconds: float
