"""The caller's own text with a prediction in a mask's place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Blocks that BERT's tokenizer splits into single characters (Devlin et al., `tokenization.py`, `_is_chinese_char`);
# in text they stand without spaces.
CHINESE_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def join_pieces(pieces: Iterable[str], *, prefix: str) -> str:
    """WordPiece pieces as text: `prefix` (`##`) joins, other words get a space, Chinese characters none."""
    text = ""
    for piece in pieces:
        if not text:
            text = piece
        elif piece.startswith(prefix):
            text += piece.removeprefix(prefix)
        elif _is_chinese(text[-1]) or _is_chinese(piece[0]):
            text += piece
        else:
            text += f" {piece}"
    return text


def fill(text: str, *, span: tuple[int, int], piece: str, prefix: str) -> str:
    """`text` with `piece` in place of the characters of `span`; one with `prefix` is joined to the word before it."""
    return fill_all(text, spans=[span], pieces=[piece], prefix=prefix)


def fill_all(text: str, *, spans: Sequence[tuple[int, int]], pieces: Sequence[str], prefix: str) -> str:
    """The same for several pieces, one for each of `spans`, which stand in the order of the text."""
    parts = []
    end = 0
    for (start, stop), piece in zip(spans, pieces, strict=True):
        before = text[end:start]
        joined = piece.startswith(prefix)
        parts += [before.rstrip(), piece.removeprefix(prefix)] if joined else [before, piece]
        end = stop
    return "".join([*parts, text[end:]])


def _is_chinese(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in CHINESE_BLOCKS)
