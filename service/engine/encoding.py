"""A task as token ids, ready to be put into a pass."""

from __future__ import annotations

from dataclasses import dataclass

from bert_core.tokenizer import Encoding
from service.engine.targets import Target
from service.tasks import Pooling, Result, Task

ALL_ROWS = None
"""In `Sequence.wanted`: every token's last hidden state is asked for."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One sequence of a pass: ids and segment ids, and which rows of the last layer are wanted."""

    ids: list[int]
    segment_ids: list[int]
    wanted: list[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedTask:
    """A task and its sequences. There are several only where targets of several pieces need more masks.

    targets: of a fill-mask task with targets, in the order given, without duplicates.
    answer_characters: length of the answer, about, where the task and its text decide that; 0 where it is short.
    result: of a task that takes no pass, and so has no sequences.
    encoding: of the text of a step of joint filling, for the next step.
    """

    task: Task
    sequences: tuple[Sequence, ...]
    mask_spans: tuple[tuple[int, int], ...] = ()
    targets: tuple[Target, ...] | None = None
    pooling: Pooling | None = None
    truncated: bool = False
    answer_characters: int = 0
    result: Result | None = None
    encoding: Encoding | None = None

    @property
    def tokens(self) -> int:
        """Tokens of the caller's own text, `[CLS]` and `[SEP]` counted."""
        return len(self.sequences[0].ids)

    @property
    def compute_tokens(self) -> int:
        """Tokens that go through the model."""
        return sum(len(sequence.ids) for sequence in self.sequences)
