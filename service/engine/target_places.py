"""Where the scores of targets stand among the logits of a pass: each mask's row is read at its own targets alone.

Axes: E wanted scores of all rows, G targets with S pieces, M `[MASK]` rows of a text.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from service.engine.encoding import EncodedTask
from service.engine.targets import Target
from service.tasks import FillMask, FillNextMask

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SizeGroup:
    """Targets of S pieces: their numbers among all targets of a text, and the ids of their pieces `[S, G]`."""

    numbers: list[int]
    ids_SG: Integers


class TargetTable:
    """The scores that one list of targets needs.

    Those of targets of one piece come first, at each row of the text's own masks; then, size by size, those of each
    larger target's pieces, at the rows of the sequence with so many masks.
    """

    def __init__(self, targets: SequenceOf[Target]) -> None:
        self._targets = len(targets)
        sizes: dict[int, list[int]] = {}
        for number, target in enumerate(targets):
            sizes.setdefault(len(target.ids), []).append(number)
        self._groups = [
            SizeGroup(numbers, np.array([targets[number].ids for number in numbers], dtype=np.int64).T)
            for _, numbers in sorted(sizes.items())
        ]

    def places(self, *, masks: int) -> tuple[Integers, Integers]:
        """Rows, counted from the text's first, and ids of all scores `[E]`, of a text with so many masks."""
        rows, ids = [], []
        next_row = masks
        for group in self._groups:
            size, count = group.ids_SG.shape
            if size == 1:
                rows.append(np.repeat(np.arange(masks), count))
                ids.append(np.tile(group.ids_SG[0], masks))
            else:
                rows.append(np.repeat(np.arange(next_row, next_row + size), count))
                ids.append(group.ids_SG.ravel())
                next_row += size
        return np.concatenate(rows), np.concatenate(ids)

    def log_probs(self, scores_E: npt.NDArray[np.float32], *, masks: int) -> npt.NDArray[np.float32]:
        """`[M, targets]` from the scores at `places`; of a target of several pieces, the mean over these."""
        log_probs_MC = np.empty((masks, self._targets), dtype=np.float32)
        first = 0
        for group in self._groups:
            size, count = group.ids_SG.shape
            rows = masks if size == 1 else size
            scores = scores_E[first : first + rows * count].reshape(rows, count)
            log_probs_MC[:, group.numbers] = scores if size == 1 else scores.mean(0)
            first += rows * count
        return log_probs_MC


class TargetPlaces:
    """Where the scores of all targets of a pass stand.

    rows_E, ids_E: int64 `[E]`, by row: among the pass's mask rows, and in the vocabulary.
    """

    def __init__(self, tasks: SequenceOf[EncodedTask]) -> None:
        # By identity: the texts of a request share their targets, and often have as many masks.
        self._tables = {id(task.targets): TargetTable(task.targets) for task in tasks if task.targets is not None}
        self._known: dict[tuple[int, int], tuple[Integers, Integers]] = {}
        rows, ids = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        row = 0
        for task in tasks:
            if not isinstance(task.task, FillMask | FillNextMask):
                continue
            if task.targets is not None:
                own_rows, own_ids = self._places(task)
                rows.append(own_rows + row)
                ids.append(own_ids)
            row += sum(len(sequence.wanted or ()) for sequence in task.sequences)
        self.rows_E, self.ids_E = np.concatenate(rows), np.concatenate(ids)

    def counts(self, *, rows: int, rows_at_once: int) -> list[int]:
        """How many scores lie in each part of so many of all the pass's mask rows."""
        parts = -(-rows // rows_at_once)
        return [int(count) for count in np.bincount(self.rows_E // rows_at_once, minlength=parts)]

    def count(self, task: EncodedTask) -> int:
        """How many scores one of the tasks needs."""
        return 0 if task.targets is None else len(self._places(task)[0])

    def log_probs(self, task: EncodedTask, scores_E: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Of each of a task's targets at each of its masks `[M, targets]`, from its own scores."""
        return self._tables[id(task.targets)].log_probs(scores_E, masks=len(task.mask_spans))

    def _places(self, task: EncodedTask) -> tuple[Integers, Integers]:
        key = id(task.targets), len(task.mask_spans)
        if key not in self._known:
            self._known[key] = self._tables[key[0]].places(masks=key[1])
        return self._known[key]
