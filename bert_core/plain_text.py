"""WordPiece of plain text by look-ups in the vocabulary.

The `tokenizers` library takes every character through four steps, at about a microsecond for each: hundreds for a
text that a fast GPU is done with in tens. Where BERT's normaliser maps each character to one, as it does in most
western text, one expression finds the words, and most of them are pieces as they are. The few words of such a text that
hold something else are left to the library, one by one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import partial

from bert_core.tokenized_text import Tokens
from bert_core.tokenizer_description import TokenizerDescription

_WHITESPACE = "\t\n\r \u00a0"
# Each is a word of its own.
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«¶·»¿‐‑‒–—―‖‘’‚‛“”„‟†‡•…‰′″‹›"
_ASCII_LETTERS = (*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1))
_OTHER_LETTERS = range(0xC0, 0x180)

# Each is tried wherever the first character of one stands.
MOST_ADDED_TOKENS = 64

CHARACTERS_PER_ODD_WORD = 64
"""With fewer for each word that is not plain, the library is as quick with the whole text."""


class PlainTokens:
    """The tokens of a text, without special tokens around it."""

    __slots__ = ("_offsets", "ids")

    def __init__(self, ids: list[int], offsets: Callable[[], list[tuple[int, int]]]) -> None:
        self.ids = ids
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Start and end of each in characters; found when they are asked for."""
        return self._offsets()


class JoinedTokens:
    """The tokens of parts of a text, each part with its start in characters."""

    __slots__ = ("_parts", "ids")

    def __init__(self, parts: list[tuple[int, Tokens]]) -> None:
        self.ids = [token_id for _, tokens in parts for token_id in tokens.ids]
        self._parts = parts

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Start and end of each in characters; found when they are asked for."""
        return [(start + begin, start + end) for start, tokens in self._parts for begin, end in tokens.offsets]


class PlainText:
    """Tokenizes what it can, exactly as the library does.

    Args:
        description: of a BERT pipeline, whose added tokens are matched in the raw text and whatever stands around them.
    """

    def __init__(self, description: TokenizerDescription) -> None:
        normalizer, model = description.normalizer, description.model
        self._lowercase: bool = normalizer["lowercase"]
        strip_accents = normalizer["strip_accents"]
        self._normalized_letters = _normalized_letters(
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
        letters = "".join(map(chr, (*_ASCII_LETTERS, *self._normalized_letters)))
        plain = f"{re.escape(_WHITESPACE + _PUNCTUATION + letters)}0-9"
        self._plain = re.compile(f"[{plain}]*")
        self._odd = re.compile(f"[^{plain}]")
        self._whitespace = re.compile(f"[{re.escape(_WHITESPACE)}]|\\Z")
        self._other_letter = re.compile(f"[{chr(_OTHER_LETTERS[0])}-{chr(_OTHER_LETTERS[-1])}]")
        alone = re.escape(_PUNCTUATION)
        self._words = re.compile(f"[^{alone}{re.escape(_WHITESPACE)}]+|[{alone}]")
        self._added_ids: dict[str, int] = {token["content"]: token["id"] for token in description.added_tokens}
        longest_first = sorted(self._added_ids, key=len, reverse=True)
        self._added_tokens = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def tokenize(self, text: str) -> PlainTokens | None:
        """The tokens of a text; None if it is not plain."""
        return self._plain_tokens(text) if self._plain.fullmatch(text) else None

    def _plain_tokens(self, text: str) -> PlainTokens:
        added = list(self._added_tokens.finditer(text))
        if not text.isascii() and self._other_letter.search(text):
            text = text.translate(self._normalized_letters)
        if self._lowercase:
            text = text.lower()
        split: dict[str, list[tuple[int, int]]] = {}
        return PlainTokens(self._ids(text, added, split), partial(self._offsets, text, added, split))

    def tokenize_most(self, text: str, *, otherwise: Callable[[str], Tokens]) -> JoinedTokens | None:
        """The tokens of a text of which a few words are not plain; None if many are.

        Args:
            text: any text.
            otherwise: gives the tokens of a word that is not plain.
        """
        odd = self._odd_words(text)
        if odd is None:
            return None
        parts: list[tuple[int, Tokens]] = []
        done = 0
        for start, end in [*odd, (len(text), len(text))]:
            parts.append((done, self._plain_tokens(text[done:start])))
            if start < end:
                parts.append((start, otherwise(text[start:end])))
            done = end
        return JoinedTokens(parts)

    def _odd_words(self, text: str) -> list[tuple[int, int]] | None:
        """Where those words begin and end, white space around them, that are not plain; None if these are many."""
        words: list[tuple[int, int]] = []
        odd_characters = end = 0
        while odd := self._odd.search(text, end):
            start = max(end, 1 + max(text.rfind(space, end, odd.start()) for space in _WHITESPACE))
            found = self._whitespace.search(text, odd.end())
            assert found is not None
            end = found.start()
            words.append((start, end))
            odd_characters += end - start
            if max(2 * odd_characters, len(words) * CHARACTERS_PER_ODD_WORD) > len(text):
                return None
        return words

    def _ids(self, text: str, added: list[re.Match[str]], split: dict[str, list[tuple[int, int]]]) -> list[int]:
        """The ids of a normalised text with such added tokens; words that are not one piece are put into `split`."""
        ids: list[int] = []
        id_of = self._id_of_word.get
        for start, end, token in _parts(text, added):
            for word in self._words.findall(text, start, end):
                token_id = id_of(word)
                if token_id is not None:
                    ids.append(token_id)
                    continue
                if word not in split:
                    split[word] = self._pieces(word)
                ids.extend(piece for piece, _ in split[word])
            if token is not None:
                ids.append(self._added_ids[token.group()])
        return ids

    def _offsets(
        self, text: str, added: list[re.Match[str]], split: dict[str, list[tuple[int, int]]]
    ) -> list[tuple[int, int]]:
        offsets: list[tuple[int, int]] = []
        for start, end, token in _parts(text, added):
            for word in self._words.finditer(text, start, end):
                begin = word.start()
                for _, length in split.get(word.group(), ((0, word.end() - begin),)):
                    offsets.append((begin, begin + length))
                    begin += length
            if token is not None:
                offsets.append(token.span())
        return offsets

    def _pieces(self, word: str) -> list[tuple[int, int]]:
        """Id and length of the pieces of a word, at each place the longest that there is."""
        pieces = []
        start, prefix = 0, ""
        while start < len(word) <= self._max_word_characters:
            for end in range(min(len(word), start + self._longest_piece), start, -1):
                token_id = self._token_ids.get(prefix + word[start:end])
                if token_id is not None:
                    pieces.append((token_id, end - start))
                    start, prefix = end, self._prefix
                    break
            else:
                break
        return pieces if start == len(word) else [(self._unknown_id, len(word))]


def _parts(text: str, added: list[re.Match[str]]) -> Iterator[tuple[int, int, re.Match[str] | None]]:
    """Start and end of what stands between added tokens, each with the token behind it."""
    start = 0
    for token in added:
        yield start, token.start(), token
        start = token.end()
    yield start, len(text), None


def _normalized_letters(*, lowercase: bool, strip_accents: bool) -> dict[int, int]:
    """What each letter beyond ASCII becomes, of those that become one character."""
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
