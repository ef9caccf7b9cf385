from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from service.engine.collate import Batch, Bucket, collate, unpack_row
from service.engine.encoding import EncodedTask, Sequence
from service.tasks import Embed, FillMask, NextSentence, Pooling, Task

CPU = torch.device("cpu")

LONG = Sequence([2, 11, 12, 13, 3], [0, 0, 0, 1, 1], None)
SHORT = Sequence([2, 21, 3], [0, 0, 0], [0])
MASKED = Sequence([2, 31, 4, 32, 4, 3], [0] * 6, [2, 4])
WIDER = Sequence([2, 4, 4, 4, 3], [0] * 5, [1, 2, 3])
SHORT_TOO = Sequence([2, 22, 3], [0, 0, 1], [0])
LAST = Sequence([2, 41, 3], [1, 1, 1], None)


def encoded(*sequences: Sequence, task: Task | None = None, pooling: Pooling | None = None) -> EncodedTask:
    return EncodedTask(task=task or Embed(text=""), sequences=sequences, pooling=pooling)


TASKS = [
    encoded(LONG, pooling="mean"),
    encoded(SHORT, task=NextSentence(text="", text_pair="")),
    encoded(MASKED, WIDER, task=FillMask(text="")),
    encoded(SHORT_TOO, pooling="cls"),
    encoded(LAST, pooling="mean"),
]
PACKED = (SHORT, SHORT_TOO, LAST, WIDER, LONG, MASKED)


def test_sequences_are_packed_shortest_first_with_their_own_positions() -> None:
    batch = collate(TASKS, device=CPU)
    packed = batch.packed
    assert packed.ids_T is not None
    assert list(packed.lengths) == [3, 3, 3, 5, 5, 6]
    assert batch.tokens == 25
    assert packed.ids_T.tolist() == [token for sequence in PACKED for token in sequence.ids]
    assert packed.segments_T.tolist() == [segment for sequence in PACKED for segment in sequence.segment_ids]
    assert packed.positions_T.tolist() == [place for sequence in PACKED for place in range(len(sequence.ids))]
    assert packed.offsets_N1.tolist() == [0, 3, 6, 9, 14, 19, 25]
    assert packed.offsets_N1.dtype == torch.int32
    assert packed.longest == 6


def wanted_ids(sequence: Sequence) -> list[int]:
    return sequence.ids if sequence.wanted is None else [sequence.ids[place] for place in sequence.wanted]


def answer(batch: Batch) -> torch.Tensor:
    """What a pass would give, if it gave ids."""
    assert batch.packed.ids_T is not None
    ids_T = batch.packed.ids_T[: batch.tokens]
    return ids_T if batch.wanted is None else ids_T[batch.wanted.rows_R]


@pytest.mark.parametrize("buckets", [(), (Bucket(40, 9),)])
@pytest.mark.parametrize("tasks", [TASKS, [TASKS[0], TASKS[4]], TASKS[2:3], TASKS[:1]])
def test_each_head_finds_its_rows_in_the_answer(tasks: list[EncodedTask], buckets: tuple[Bucket, ...]) -> None:
    batch = collate(tasks, device=CPU, buckets=buckets)
    members: list[int] = []
    for kind, rows in batch.heads.items():
        own = [tasks[number] for number in rows.members]
        assert {task.pooling or type(task.task) for task in own} <= {kind, FillMask, NextSentence}
        sequences = [sequence for task in own for sequence in task.sequences]
        found = answer(batch)[rows.rows_X].tolist()
        ends = rows.offsets_N1.tolist()
        assert [found[begin:end] for begin, end in pairwise(ends)] == [*map(wanted_ids, sequences)]
        assert ends[-1] == len(found)
        members += rows.members
    assert sorted(members) == list(range(len(tasks)))


def test_wanted_rows_know_how_many_each_sequence_has() -> None:
    wanted = collate(TASKS, device=CPU).wanted
    assert wanted is not None
    assert list(wanted.counts) == [1, 1, 3, 3, 5, 2]
    assert wanted.offsets_N1.tolist() == [0, 1, 2, 5, 8, 13, 15]


def test_where_all_rows_are_wanted_none_are_named() -> None:
    batch = collate([TASKS[0]] * 2, device=CPU)
    assert batch.wanted is None
    assert len(batch.packed.runs) == 1


def test_other_arrays_travel_along() -> None:
    batch = collate(TASKS, device=CPU, extra=[np.array([7, 9]), np.array([4])])
    assert [tensor.tolist() for tensor in batch.extra] == [[7, 9], [4]]
    assert batch.heads.keys() == collate(TASKS, device=CPU).heads.keys()


@pytest.mark.parametrize(
    ("buckets", "taken"),
    [
        ([(25, 7), (64, 99)], (25, 7)),
        ([(24, 7), (64, 99)], (64, 99)),  # fewer tokens than there are
        ([(32, 6), (64, 99)], (64, 99)),  # no sequence left for a filler
        ([(24, 7), (32, 6)], None),
        ([], None),
    ],
)
def test_the_first_bucket_with_room_is_filled(buckets: list[tuple[int, int]], taken: tuple[int, int] | None) -> None:
    batch = collate(TASKS, device=CPU, buckets=[Bucket(*bucket) for bucket in buckets])
    assert batch.bucket == (Bucket(*taken) if taken else None)


def test_the_filler_is_a_sequence_of_its_own_and_the_rest_are_empty() -> None:
    bucket = Bucket(32, 9)
    plain, filled = collate(TASKS, device=CPU), collate(TASKS, device=CPU, buckets=[bucket])
    assert filled.tokens == 25
    packed = unpack_row(filled.row_X, bucket=bucket)
    for ours, right in (
        (packed.ids_T, plain.packed.ids_T),
        (packed.segments_T, plain.packed.segments_T),
        (packed.positions_T, plain.packed.positions_T),
    ):
        assert ours is not None
        assert right is not None
        assert ours.tolist() == right.tolist() + [0] * 7
    assert packed.offsets_N1.tolist() == [*plain.packed.offsets_N1.tolist(), 32, 32, 32]
    assert packed.longest == 32
    assert len(packed.lengths) == 0
