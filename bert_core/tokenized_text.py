"""The tokens of one text, computed a chunk at a time.

The `tokenizers` library keeps about 100 bytes for each character while it works, so a text of a few megabytes would
take hundreds. Chunks bound that, and let a text of which only the beginning is kept stop early.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from tokenizers import AddedToken

CHUNK_CHARACTERS = 16_384

_WHITESPACE = " \t\n\r"
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff"


def chunk_boundary(added_tokens: Iterable[AddedToken], *, split_chinese: bool) -> re.Pattern[str] | None:
    """Matches a character after which BERT's tokenisation always starts afresh; None if there may be no such place.

    Such characters stand alone for BERT (white space, ASCII punctuation, Chinese characters if those are split) and
    occur in no added token. Added tokens that look at their surroundings, or at the normalised text, rule out any.
    """
    inside_tokens: set[str] = set()
    for token in added_tokens:
        if token.normalized or token.single_word or token.lstrip or token.rstrip or re.search(r"\s", token.content):
            return None
        inside_tokens.update(token.content)
    alone = re.escape(_WHITESPACE + _PUNCTUATION) + (_CHINESE if split_chinese else "")
    return re.compile(f"(?![{re.escape(''.join(sorted(inside_tokens)))}])[{alone}]")


def chunks(text: str, *, boundary: re.Pattern[str] | None, characters: int) -> Iterator[tuple[int, int]]:
    """Character ranges that cover `text` in order, each ending at the first boundary after `characters`."""
    start = 0
    while boundary is not None and len(text) - start > characters:
        found = boundary.search(text, start + characters - 1)
        if found is None or found.end() == len(text):
            break
        yield start, found.end()
        start = found.end()
    yield start, len(text)


class Tokens(Protocol):
    """What comes of tokenizing a text."""

    @property
    def ids(self) -> list[int]: ...

    @property
    def offsets(self) -> list[tuple[int, int]]: ...

    def __len__(self) -> int: ...


class _Chunk(NamedTuple):
    start: int
    end: int
    first_token: int
    tokens: int


class TokenizedText:
    """How many tokens a text has, and any window of them.

    Args:
        text: the caller's text.
        tokenize: text to its tokens, without special tokens around it.
        boundary: from `chunk_boundary`.
        enough: stop after the chunk with which the length passes this many tokens.
    """

    __slots__ = ("_chunks", "_last", "_last_start", "_text", "_tokenize", "length")

    def __init__(
        self,
        text: str,
        *,
        tokenize: Callable[[str], Tokens],
        boundary: re.Pattern[str] | None,
        enough: int | None = None,
    ) -> None:
        self._text = text
        self._tokenize = tokenize
        self._last_start = 0
        if len(text) <= CHUNK_CHARACTERS:
            self._last = tokenize(text)
            self.length = len(self._last)
            self._chunks = [_Chunk(0, len(text), 0, self.length)]
            return
        self._last_start = -1
        self._chunks = []
        self.length = 0
        for start, end in chunks(text, boundary=boundary, characters=CHUNK_CHARACTERS):
            tokens = len(self._tokens(start, end))
            self._chunks.append(_Chunk(start, end, self.length, tokens))
            self.length += tokens
            if enough is not None and self.length > enough:
                break

    def window(self, start: int, stop: int, *, offsets: bool) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of tokens `start` to `stop`, and their places in characters or, without `offsets`, none."""
        if len(self._chunks) == 1 and stop - start == self.length:
            return self._last.ids, self._last.offsets if offsets else []
        ids: list[int] = []
        places: list[tuple[int, int]] = []
        for chunk in self._chunks:
            low, high = max(start - chunk.first_token, 0), min(stop - chunk.first_token, chunk.tokens)
            if low < high:
                tokens = self._tokens(chunk.start, chunk.end)
                ids += tokens.ids[low:high]
                if offsets:
                    places += [(begin + chunk.start, end + chunk.start) for begin, end in tokens.offsets[low:high]]
        return ids, places

    def span(self, token: str, token_id: int) -> tuple[int, int] | None:
        """Places of the first and the last occurrence of a special token; None without any."""
        first = next(self._places(self._chunks, token, token_id), None)
        if first is None:
            return None
        return min(first), max(next(self._places(reversed(self._chunks), token, token_id)))

    def _places(self, chunks: Iterable[_Chunk], token: str, token_id: int) -> Iterator[list[int]]:
        for chunk in chunks:
            if self._text.find(token, chunk.start, chunk.end) >= 0:
                places = positions(self._tokens(chunk.start, chunk.end).ids, token_id)
                if places:
                    yield [chunk.first_token + place for place in places]

    def _tokens(self, start: int, end: int) -> Tokens:
        if start != self._last_start:
            whole = start == 0 and end == len(self._text)
            self._last = self._tokenize(self._text if whole else self._text[start:end])
            self._last_start = start
        return self._last


def positions(ids: list[int], wanted: int) -> list[int]:
    """The places of `wanted` in `ids`, in order."""
    if wanted not in ids:
        return []
    return [place for place, token_id in enumerate(ids) if token_id == wanted]
