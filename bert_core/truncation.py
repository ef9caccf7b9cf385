"""Which tokens of an over-long sequence are kept: pure arithmetic on lengths."""

from __future__ import annotations

from typing import Literal, TypeAlias

TruncationSide: TypeAlias = Literal["left", "right"]
"""The end of an over-long text that is cut off."""


class SequenceTooLongError(ValueError):
    """A sequence over the limit that may not be cut.

    Args:
        length: tokens of the sequence, special tokens counted.
        limit: tokens allowed, special tokens counted.
    """

    def __init__(self, *, length: int, limit: int) -> None:
        super().__init__(f"the text has {length} tokens, special tokens counted; at most {limit} are allowed")
        self.length = length
        self.limit = limit


class MaskSpanError(ValueError):
    """The masks of a text lie too far apart for any window that the limit allows.

    Args:
        span: tokens from the first mask to the last, both counted.
        room: tokens that a window can hold, without the special tokens around it.
    """

    def __init__(self, *, span: int, room: int) -> None:
        super().__init__(f"the masks span {span} tokens; a window of at most {room} can be kept")
        self.span = span
        self.room = room


def window_start(length: int, *, room: int, side: TruncationSide, masks: tuple[int, int] | None = None) -> int:
    """The first token of the window of `room` tokens that is kept of `length`, where `length` > `room`.

    masks: places of the first and the last token that must be kept; the window moves away from the end that `side`
    keeps only as far as they need.

    Raises:
        MaskSpanError: the masks span more than `room`.
    """
    start = 0 if side == "right" else length - room
    if masks is None:
        return start
    first, last = masks
    if last - first >= room:
        raise MaskSpanError(span=last - first + 1, room=room)
    return min(max(start, last - room + 1), first)


def pair_lengths(first: int, second: int, *, room: int) -> tuple[int, int]:
    """The lengths kept of a pair: a token at a time off the longer half, off the second where they tie.

    This is `_truncate_seq_pair` of google-research/bert, in constant time.
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if second <= half:
        return room - second, second
    if first <= room - half:
        return first, room - first
    return room - half, half
