"""Sequences of many tasks to one packed batch."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from bert_core.packing import PackedTokens, WantedRows
from service.engine.encoding import Sequence


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """One pass: packed tokens, the rows that are wanted of it, and where each sequence's answer begins.

    wanted: None if every row of every sequence is wanted.
    answers: for each sequence, in the order given, its slice of the rows that the pass gives back.
    """

    packed: PackedTokens
    wanted: WantedRows | None
    answers: list[slice]


def collate(sequences: SequenceOf[Sequence], *, device: torch.device) -> Batch:
    """Pack sequences, neighbours of like length side by side, so that attention runs over few, large blocks."""
    order = sorted(range(len(sequences)), key=lambda index: _shape(sequences[index]))
    ordered = [sequences[index] for index in order]
    lengths = [len(sequence.ids) for sequence in ordered]
    rows_3T = np.empty((3, sum(lengths)), dtype=np.int64)
    rows_3T[0] = list(chain.from_iterable(sequence.ids for sequence in ordered))
    rows_3T[1] = list(chain.from_iterable(sequence.segment_ids for sequence in ordered))
    starts = np.cumsum([0, *lengths[:-1]])
    rows_3T[2] = np.arange(rows_3T.shape[1]) - np.repeat(starts, lengths)
    ids_T, segments_T, positions_T = torch.from_numpy(rows_3T).to(device, non_blocking=True)
    counts = [_shape(sequence)[1] for sequence in ordered]
    wanted = None
    if any(sequence.wanted is not None for sequence in ordered):
        wanted = WantedRows(_wanted_rows(ordered, starts=starts.tolist()).to(device, non_blocking=True), counts)
    answers = [slice(0, 0)] * len(sequences)
    first = 0
    for index, count in zip(order, counts, strict=True):
        answers[index] = slice(first, first + count)
        first += count
    return Batch(PackedTokens(ids_T, segments_T, positions_T, lengths), wanted, answers)


def _shape(sequence: Sequence) -> tuple[int, int]:
    """Length, and how many rows are wanted: sequences that agree in both share a block."""
    length = len(sequence.ids)
    return length, length if sequence.wanted is None else len(sequence.wanted)


def _wanted_rows(ordered: SequenceOf[Sequence], *, starts: list[int]) -> Tensor:
    places = (range(len(sequence.ids)) if sequence.wanted is None else sequence.wanted for sequence in ordered)
    return torch.tensor([start + place for start, rows in zip(starts, places, strict=True) for place in rows])
