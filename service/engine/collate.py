"""Tasks of every kind to one packed batch, and which rows of its answer each head reads."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bert_core.packing import PackedTokens, WantedRows
from service.engine.encoding import EncodedTask, Sequence
from service.engine.transfer import to_device
from service.tasks import Decode, Embed, EmbedAll, EmbedSparse, FillMask, FillNextMask, NextSentence, Tokenize

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bucket:
    """A fixed shape for batches: so many tokens, and so many sequences, of which one is a filler."""

    tokens: int
    sequences: int

    def fits(self, *, tokens: int, sequences: int) -> bool:
        """Whether a batch can be filled up to this shape."""
        return tokens <= self.tokens and sequences < self.sequences


@dataclass(frozen=True, eq=False, slots=True)
class HeadRows:
    """What the tasks of one kind have of a pass.

    members: numbers of the tasks in the batch.
    rows_X: int64 `[X]`, the rows of all their sequences, one sequence after the other, among those that the pass gives.
    offsets_N1: int64 `[N + 1]`, where each sequence begins and ends in `rows_X`.
    """

    members: list[int]
    rows_X: Tensor
    offsets_N1: Tensor


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """One pass.

    row_X: int64, all that the trunk reads in one row, as `unpack_row` takes it apart.
    packed: the same, taken apart.
    tokens: of the sequences, without a filler.
    wanted: the rows that the pass shall give; None if that is every row of every sequence.
    bucket: the shape up to which the batch is filled; None if it is not.
    heads: for each kind of task, its name or a pooling, what it has of the pass.
    extra: the arrays that `collate` was given.
    """

    row_X: Tensor
    packed: PackedTokens
    tokens: int
    wanted: WantedRows | None
    bucket: Bucket | None
    heads: Mapping[str, HeadRows]
    extra: SequenceOf[Tensor]


def collate(
    tasks: SequenceOf[EncodedTask],
    *,
    device: torch.device,
    buckets: SequenceOf[Bucket] = (),
    extra: SequenceOf[Integers] = (),
) -> Batch:
    """Pack the sequences of tasks, neighbours of like length side by side, so that attention runs over large blocks.

    All is computed on the host and copied to the device at once. The batch is filled up to the first of `buckets` that
    has room, by a sequence of its own that is in no answer. `extra` arrays travel along.
    """
    sequences = [sequence for task in tasks for sequence in task.sequences]
    order = sorted(range(len(sequences)), key=lambda number: _shape(sequences[number]))
    ordered = [sequences[number] for number in order]
    lengths, counts = (list(column) for column in zip(*map(_shape, ordered), strict=True))
    tokens = sum(lengths)
    bucket = next((one for one in buckets if one.fits(tokens=tokens, sequences=len(ordered))), None)
    arrays = [_trunk_row(ordered, lengths, bucket=bucket), *extra]
    all_rows = all(sequence.wanted is None for sequence in ordered)
    if not all_rows:
        arrays += [_wanted_rows(ordered, lengths), _offsets(counts)]
    # Where each sequence's rows begin and end among those that the pass gives.
    spans = dict(zip(order, pairwise(accumulate(counts, initial=0)), strict=True))
    kinds = _by_kind(tasks)
    for _, numbers in kinds.values():
        arrays += _head_rows([spans[number] for number in numbers])
    row_X, *parts = to_device(arrays, device=device)
    extra_on_device, parts = parts[: len(extra)], parts[len(extra) :]
    wanted = None if all_rows else WantedRows(parts.pop(0), counts, parts.pop(0))
    heads = zip(kinds.items(), parts[::2], parts[1::2], strict=True)
    return Batch(
        row_X=row_X,
        packed=unpack_row(row_X, bucket=bucket, lengths=lengths),
        tokens=tokens,
        wanted=wanted,
        bucket=bucket,
        heads={kind: HeadRows(members, rows_X, offsets_N1) for (kind, (members, _)), rows_X, offsets_N1 in heads},
        extra=extra_on_device,
    )


def unpack_row(row_X: Tensor, *, bucket: Bucket | None, lengths: SequenceOf[int] = ()) -> PackedTokens:
    """Views of a row of ids, segments, positions (`[T]` each) and offsets `[N + 1]`.

    Of a row of a bucket only the shape is known on the host, and `lengths` are not used.
    """
    if bucket is None:
        ids_T, segments_T, positions_T, offsets_N1 = row_X.split([*[sum(lengths)] * 3, len(lengths) + 1])
        return PackedTokens(ids_T, segments_T, positions_T, lengths, given_offsets_N1=offsets_N1)
    ids_T, segments_T, positions_T, offsets_N1 = row_X.split([*[bucket.tokens] * 3, bucket.sequences + 1])
    return PackedTokens(ids_T, segments_T, positions_T, (), given_offsets_N1=offsets_N1, length_bound=bucket.tokens)


def _shape(sequence: Sequence) -> tuple[int, int]:
    """Length, and how many rows are wanted: sequences that agree in both share a block."""
    length = len(sequence.ids)
    return length, length if sequence.wanted is None else len(sequence.wanted)


def _trunk_row(ordered: SequenceOf[Sequence], lengths: SequenceOf[int], *, bucket: Bucket | None) -> Integers:
    """As `unpack_row` takes it. The filler has id, segment and position 0; sequences after it are empty."""
    used, count = sum(lengths), len(lengths)
    tokens, room = (used, count) if bucket is None else (bucket.tokens, bucket.sequences)
    row_X = np.zeros(3 * tokens + room + 1, dtype=np.int64)
    row_X[:used] = list(chain.from_iterable(sequence.ids for sequence in ordered))
    row_X[tokens : tokens + used] = list(chain.from_iterable(sequence.segment_ids for sequence in ordered))
    row_X[2 * tokens : 2 * tokens + used] = _ranges([0] * count, lengths)
    row_X[3 * tokens : 3 * tokens + count + 1] = _offsets(lengths)
    row_X[3 * tokens + count + 1 :] = tokens
    return row_X


def _wanted_rows(ordered: SequenceOf[Sequence], lengths: SequenceOf[int]) -> Integers:
    places = (range(len(sequence.ids)) if sequence.wanted is None else sequence.wanted for sequence in ordered)
    starts = accumulate(lengths, initial=0)
    return np.array([start + place for start, rows in zip(starts, places, strict=False) for place in rows])


def _head_rows(spans: SequenceOf[tuple[int, int]]) -> tuple[Integers, Integers]:
    """`rows_X` and `offsets_N1` of `HeadRows`, for sequences whose rows are these spans of what the pass gives."""
    counts = [end - begin for begin, end in spans]
    return _ranges([begin for begin, _ in spans], counts), _offsets(counts)


def _ranges(begins: SequenceOf[int], counts: SequenceOf[int]) -> Integers:
    """The ranges that begin there and have so many numbers, one after the other."""
    if len(counts) == 1:
        return np.arange(begins[0], begins[0] + counts[0])
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) + np.repeat(begins - ends + counts, counts)


def _offsets(counts: SequenceOf[int]) -> Integers:
    return np.array([*accumulate(counts, initial=0)])


def _by_kind(tasks: SequenceOf[EncodedTask]) -> dict[str, tuple[list[int], list[int]]]:
    """Numbers of the tasks that go to the same head, and of their sequences."""
    kinds: dict[str, tuple[list[int], list[int]]] = {}
    sequence = 0
    for number, task in enumerate(tasks):
        match task.task:
            case FillMask() | FillNextMask():
                kind = "fill_mask"
            case NextSentence():
                kind = "next_sentence"
            case Embed():
                assert task.pooling is not None
                kind = task.pooling
            case EmbedAll():
                kind = "embed_all"
            case EmbedSparse():
                kind = "embed_sparse"
            case Tokenize() | Decode():
                raise AssertionError("takes no pass")
        members, sequences = kinds.setdefault(kind, ([], []))
        members.append(number)
        sequences.extend(range(sequence, sequence + len(task.sequences)))
        sequence += len(task.sequences)
    return kinds
