from __future__ import annotations

import torch

from service.engine.collate import collate
from service.engine.encoding import Sequence

LONG = Sequence([2, 11, 12, 13, 3], [0, 0, 0, 1, 1], None)
SHORT = Sequence([2, 21, 3], [0, 0, 0], [0])
MASKED = Sequence([2, 31, 4, 32, 4, 3], [0] * 6, [2, 4])
SHORT_TOO = Sequence([2, 22, 3], [0, 0, 1], [1])


def test_sequences_are_packed_shortest_first_with_their_own_positions() -> None:
    packed = collate([LONG, SHORT, MASKED, SHORT_TOO], device=torch.device("cpu")).packed
    assert packed.ids_T is not None
    assert list(packed.lengths) == [3, 3, 5, 6]
    assert packed.ids_T.tolist() == [*SHORT.ids, *SHORT_TOO.ids, *LONG.ids, *MASKED.ids]
    assert packed.segments_T.tolist() == [*SHORT.segment_ids, *SHORT_TOO.segment_ids, *LONG.segment_ids, *[0] * 6]
    assert packed.positions_T.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5]


def test_each_sequence_finds_its_wanted_rows_in_the_answer() -> None:
    sequences = [LONG, SHORT, MASKED, SHORT_TOO]
    batch = collate(sequences, device=torch.device("cpu"))
    assert batch.wanted is not None
    assert batch.packed.ids_T is not None
    answer = batch.packed.ids_T[batch.wanted.rows_R]
    for sequence, part in zip(sequences, batch.answers, strict=True):
        places = range(len(sequence.ids)) if sequence.wanted is None else sequence.wanted
        assert answer[part].tolist() == [sequence.ids[place] for place in places]
    assert list(batch.wanted.counts) == [1, 1, 5, 2]


def test_where_all_rows_are_wanted_none_are_named() -> None:
    batch = collate([LONG, LONG], device=torch.device("cpu"))
    assert batch.wanted is None
    assert batch.answers == [slice(0, 5), slice(5, 10)]
    assert len(batch.packed.runs) == 1
