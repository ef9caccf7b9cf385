"""What batching needs of an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from service.errors import ServiceError
from service.tasks import Result, Task


class EncodedTask(Protocol):
    """A task as token ids, ready to be put into a pass."""

    @property
    def compute_tokens(self) -> int:
        """Tokens that its pass, or passes, cost: at least 1, or 0 if it takes no pass."""
        ...

    @property
    def answer_characters(self) -> int:
        """Length of its answer where the task decides that, about; else 0."""
        ...

    @property
    def result(self) -> Result | None:
        """Its result if it takes no pass."""
        ...


EncodedT = TypeVar("EncodedT", bound=EncodedTask)


class BatchEngine(Protocol[EncodedT]):
    """The model, as batching sees it; `EncodedT` is the engine's own business."""

    @property
    def threads(self) -> int:
        """How many threads its passes share: so many passes may run at once, or fewer with more threads each."""
        ...

    def encode(self, task: Task) -> EncodedT:
        """Turn a task into ids. Called from any thread, several at once.

        Raises:
            RequestError: `EmptyInput`, `InvalidInput` or `HeadMissing`; the fault is this item's alone.
        """
        ...

    def run(self, batch: Sequence[EncodedT], *, threads: int) -> Sequence[Result | ServiceError]:
        """One result or error per item, in the order given.

        Called from model threads, with several `threads` from the first of them only, and then from no other meanwhile.

        Raises:
            Unhealthy: the device is beyond recovery; the batcher stops and tells the application.
            Exception: the whole batch failed beyond what the engine could isolate; the next batch may succeed.
        """
        ...
