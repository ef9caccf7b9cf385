from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_core.truncation import MaskSpanError, TruncationSide, pair_lengths, window_start


def pair_lengths_a_token_at_a_time(first: int, second: int, *, room: int) -> tuple[int, int]:
    """`_truncate_seq_pair` of google-research/bert."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


@given(first=st.integers(0, 60), second=st.integers(0, 60), room=st.integers(0, 70))
def test_pair_lengths_equal_cutting_a_token_at_a_time(first: int, second: int, room: int) -> None:
    assert pair_lengths(first, second, room=room) == pair_lengths_a_token_at_a_time(first, second, room=room)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (0, 510, (0, 509)),
        (600, 0, (509, 0)),
        (400, 300, (255, 254)),
        (300, 400, (255, 254)),
        (300, 300, (255, 254)),
        (20, 10**12, (20, 489)),
    ],
)
def test_pair_lengths_in_509(first: int, second: int, kept: tuple[int, int]) -> None:
    assert pair_lengths(first, second, room=509) == kept


@pytest.mark.parametrize(
    ("side", "masks", "start"),
    [
        ("right", None, 0),
        ("left", None, 13),
        ("right", (0, 6), 0),
        ("right", (0, 0), 0),
        ("right", (2, 7), 1),
        ("right", (19, 19), 13),
        ("left", (19, 19), 13),
        ("left", (13, 19), 13),
        ("left", (12, 15), 12),
        ("left", (0, 0), 0),
    ],
)
def test_window_moves_only_as_far_as_the_masks_need(
    side: TruncationSide, masks: tuple[int, int] | None, start: int
) -> None:
    assert window_start(20, room=7, side=side, masks=masks) == start


def test_masks_that_no_window_holds_are_refused() -> None:
    with pytest.raises(MaskSpanError, match="span 8 tokens; a window of at most 7") as caught:
        window_start(20, room=7, side="right", masks=(5, 12))
    assert (caught.value.span, caught.value.room) == (8, 7)
