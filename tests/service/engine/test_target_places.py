from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from service.engine.encoding import EncodedTask, Sequence
from service.engine.target_places import TargetPlaces
from service.engine.targets import Target
from service.tasks import FillMask


def targets(*pieces: tuple[int, ...]) -> tuple[Target, ...]:
    return tuple(Target(ids, "word", "place") for ids in pieces)


def masked(own: tuple[Target, ...] | None, *, masks: int = 1) -> EncodedTask:
    """A task with so many masks, and a sequence for each size of its targets."""
    sizes = sorted({len(target.ids) for target in own or ()} - {1})
    sequences = [Sequence([2] * 9, [0] * 9, list(range(rows))) for rows in (masks, *sizes)]
    spans = tuple((mask, mask + 1) for mask in range(masks))
    return EncodedTask(task=FillMask(text=""), sequences=tuple(sequences), mask_spans=spans, targets=own)


SHARED = targets((7,), (11,))
MIXED = targets((21, 22, 23), (7,), (31, 32), (24, 25, 26))
TASKS = [masked(None, masks=3), masked(SHARED, masks=2), masked(MIXED), masked(SHARED)]


def test_each_row_is_read_at_its_own_targets() -> None:
    places = TargetPlaces(TASKS)
    found = [*zip(places.rows_E.tolist(), places.ids_E.tolist(), strict=True)]
    assert found == [
        *[(3, 7), (3, 11), (4, 7), (4, 11)],
        *[(5, 7), (6, 31), (7, 32), (8, 21), (8, 24), (9, 22), (9, 25), (10, 23), (10, 26)],
        *[(11, 7), (11, 11)],
    ]
    assert [places.count(task) for task in TASKS] == [0, 4, 9, 2]


def test_scores_go_back_to_their_targets() -> None:
    places = TargetPlaces(TASKS)
    scores = np.arange(9, dtype=np.float32)
    assert places.log_probs(TASKS[1], scores[:4]).tolist() == [[0, 1], [2, 3]]
    # 0 is of (7,), 1 and 2 of the pieces of (31, 32), the others in turn of those of the two with three.
    assert places.log_probs(TASKS[2], scores).tolist() == [[(3 + 5 + 7) / 3, 0, (1 + 2) / 2, (4 + 6 + 8) / 3]]


@pytest.mark.parametrize("rows", [1, 2, 5, 12, 99])
def test_scores_are_counted_by_parts_of_the_rows(rows: int) -> None:
    places = TargetPlaces(TASKS)
    counts = places.counts(rows=12, rows_at_once=rows)
    assert len(counts) == -(-12 // rows)
    ends = np.cumsum([0, *counts])
    for part, (begin, end) in enumerate(pairwise(ends)):
        assert set(places.rows_E[begin:end] // rows) <= {part}
    assert ends[-1] == len(places.rows_E)


def test_many_requests_with_targets_of_their_own_add_up_and_do_not_multiply() -> None:
    requests = [masked(targets(*((100 * number + target,) for target in range(50)))) for number in range(80)]
    assert len(TargetPlaces(requests).rows_E) == 80 * 50


def test_without_targets_there_is_nothing_to_read() -> None:
    places = TargetPlaces([masked(None, masks=2)])
    assert places.rows_E.tolist() == places.ids_E.tolist() == []
    assert places.ids_E.dtype == np.int64
    assert places.counts(rows=2, rows_at_once=1) == [0, 0]
