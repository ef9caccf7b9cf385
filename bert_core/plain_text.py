"""WordPiece of plain text by look-ups in the vocabulary.

The `tokenizers` library takes every character through four steps, at about a microsecond for each: hundreds for a
text that a fast GPU is done with in tens. Where BERT's normaliser maps each character to one, as it does in most
western text, one expression finds the words, and most of them are pieces as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from bert_core.tokenizer_description import TokenizerDescription

_WHITESPACE = "\t\n\r \u00a0"
# Each is a word of its own.
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«¶·»¿‐‑‒–—―‖‘’‚‛“”„‟†‡•…‰′″‹›"
_ASCII_LETTERS = (*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1))
_OTHER_LETTERS = range(0xC0, 0x180)


class PlainTokens:
    """The tokens of a text, without special tokens around it."""

    __slots__ = ("_added", "_normalized", "_tokenizer", "ids")

    def __init__(self, tokenizer: PlainText, normalized: str, added: list[re.Match[str]]) -> None:
        self._tokenizer = tokenizer
        self._normalized = normalized
        self._added = added
        self.ids = tokenizer.ids(normalized, added)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Start and end of each in characters; computed when they are asked for."""
        return self._tokenizer.offsets(self._normalized, self._added)


class PlainText:
    """Tokenizes what it can, exactly as the library does.

    Args:
        description: of a BERT pipeline, whose added tokens are matched in the raw text and whatever stands around them.
    """

    def __init__(self, description: TokenizerDescription) -> None:
        normalizer, model = description.normalizer, description.model
        self._lowercase: bool = normalizer["lowercase"]
        strip_accents = normalizer["strip_accents"]
        self._other_letters = _normalized_letters(
            lowercase=self._lowercase, strip_accents=self._lowercase if strip_accents is None else strip_accents
        )
        self._token_ids = description.token_ids
        self._unknown_id = description.token_ids[model["unk_token"]]
        self._prefix: str = model["continuing_subword_prefix"]
        self._max_word_characters: int = model["max_input_chars_per_word"]
        self._longest_piece = max(map(len, description.token_ids))
        self._id_of_word = {
            piece: token_id
            for piece, token_id in description.token_ids.items()
            if len(piece) <= self._max_word_characters
        }
        letters = "".join(map(chr, (*_ASCII_LETTERS, *self._other_letters)))
        self._plain = re.compile(f"[{re.escape(_WHITESPACE + _PUNCTUATION + letters)}0-9]*")
        self._other_letter = re.compile(f"[{chr(_OTHER_LETTERS[0])}-{chr(_OTHER_LETTERS[-1])}]")
        alone = re.escape(_PUNCTUATION)
        self._words = re.compile(f"[^{alone}{re.escape(_WHITESPACE)}]+|[{alone}]")
        self._added_ids: dict[str, int] = {token["content"]: token["id"] for token in description.added_tokens}
        longest_first = sorted(self._added_ids, key=len, reverse=True)
        self._added_tokens = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def tokenize(self, text: str) -> PlainTokens | None:
        """The tokens of a text; None if it is not plain."""
        if not self._plain.fullmatch(text):
            return None
        added = list(self._added_tokens.finditer(text))
        if not text.isascii() and self._other_letter.search(text):
            text = text.translate(self._other_letters)
        return PlainTokens(self, text.lower() if self._lowercase else text, added)

    def ids(self, normalized: str, added: list[re.Match[str]]) -> list[int]:
        """The ids of a text, in which these are the places of added tokens."""
        ids: list[int] = []
        id_of = self._id_of_word.get
        for start, end, token in _parts(normalized, added):
            for word in self._words.findall(normalized, start, end):
                token_id = id_of(word)
                if token_id is None:
                    ids.extend(token_id for token_id, _ in self._pieces(word))
                else:
                    ids.append(token_id)
            if token is not None:
                ids.append(self._added_ids[token.group()])
        return ids

    def offsets(self, normalized: str, added: list[re.Match[str]]) -> list[tuple[int, int]]:
        """Start and end of each of `ids`."""
        offsets: list[tuple[int, int]] = []
        for start, end, token in _parts(normalized, added):
            for match in self._words.finditer(normalized, start, end):
                if match.group() in self._id_of_word:
                    offsets.append(match.span())
                    continue
                begin = match.start()
                for _, length in self._pieces(match.group()):
                    offsets.append((begin, begin + length))
                    begin += length
            if token is not None:
                offsets.append(token.span())
        return offsets

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """Id and length of the pieces of a word, at each place the longest that there is."""
        unknown = [(self._unknown_id, len(word))]
        if len(word) > self._max_word_characters:
            return unknown
        pieces = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest_piece), start, -1):
                token_id = self._token_ids.get(prefix + word[start:end])
                if token_id is not None:
                    pieces.append((token_id, end - start))
                    start, prefix = end, self._prefix
                    break
            else:
                return unknown
        return pieces


def _parts(text: str, added: list[re.Match[str]]) -> Iterator[tuple[int, int, re.Match[str] | None]]:
    """Start and end of what stands between added tokens, each with the token behind it."""
    start = 0
    for token in added:
        yield start, token.start(), token
        start = token.end()
    yield start, len(text), None


def _normalized_letters(*, lowercase: bool, strip_accents: bool) -> dict[int, int]:
    """Of the letters that are not ASCII those that one character comes of, and which."""
    letters = {}
    for letter in _OTHER_LETTERS:
        normalized = chr(letter)
        if strip_accents:
            parts = unicodedata.normalize("NFD", normalized)
            normalized = "".join(part for part in parts if unicodedata.category(part) != "Mn")
        if lowercase:
            normalized = normalized.lower()
        if len(normalized) == 1:
            letters[letter] = ord(normalized)
    return letters
