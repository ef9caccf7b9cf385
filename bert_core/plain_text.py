"""WordPiece of plain text by look-ups in the vocabulary.

The `tokenizers` library takes every character through four steps, at about a microsecond for each: hundreds for a
text that a fast GPU is done with in tens. Where BERT's normaliser maps each character to one, as it does in most
western text, one expression finds the words, and most of them are pieces as they are. So it is with text that is plain
once it is cleaned, of soft hyphens for instance. Of other text the few words that are not plain are left to the
library, one by one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import chain

from bert_core.tokenized_text import Tokens
from bert_core.tokenizer_description import TokenizerDescription

_WHITESPACE = "\t\n\r \u00a0"
# Each is a word of its own.
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«¶·»¿‐‑‒–—―‖‘’‚‛“”„‟†‡•…‰′″‹›"
_ASCII_LETTERS = (*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1))
_OTHER_LETTERS = range(0xC0, 0x180)
# Most of the control characters and invisible ones, of which cleaning leaves nothing.
_CLEANED_AWAY = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd"

# Each is tried wherever the first character of one stands.
MOST_ADDED_TOKENS = 64

CHARACTERS_PER_ODD_WORD = 64
"""With fewer for each word that is not plain, the library is as quick with the whole text."""

WORDS_KEPT = 4_096
LONGEST_WORD_KEPT = 100
"""So many words of several pieces are remembered: some 2 MB, and 10 if somebody sends the longest on purpose."""


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
        self._ids_of_word = _IdsOfWord(
            description.token_ids,
            unknown_id=description.token_ids[model["unk_token"]],
            prefix=model["continuing_subword_prefix"],
            max_characters=model["max_input_chars_per_word"],
        )
        letters = "".join(map(chr, _ASCII_LETTERS)) + "".join(self._normalized_letters)
        plain = f"{re.escape(_WHITESPACE + _PUNCTUATION + letters)}0-9"
        self._plain = re.compile(f"[{plain}]*")
        self._odd = re.compile(f"[^{plain}]")
        self._cleaned_away = re.compile(f"[{_CLEANED_AWAY}]+" if normalizer["clean_text"] else "(?!)")
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
        text = self._normalized(text)
        return PlainTokens(self._ids(text, added), partial(self._offsets, text, added))

    def _normalized(self, text: str) -> str:
        if not text.isascii():
            text = self._other_letter.sub(lambda letter: self._normalized_letters[letter.group()], text)
        return text.lower() if self._lowercase else text

    def tokenize_most(self, text: str, *, otherwise: Callable[[str], Tokens]) -> Tokens | None:
        """The tokens of a text that is plain once it is cleaned, or of which a few words are not plain; else None.

        Args:
            text: any text.
            otherwise: gives the tokens of a word that is not plain.
        """
        cleaned = self._cleaned(text)
        if cleaned is not None:
            cleaned = self._normalized(cleaned)
            return PlainTokens(self._ids(cleaned, []), partial(self._offsets_in, text, cleaned))
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

    def _cleaned(self, text: str) -> str | None:
        """A text without what is cleaned away, if it is plain then and holds no added tokens: those are as given."""
        cleaned = self._cleaned_away.sub("", text)
        is_plain = len(cleaned) < len(text) and self._plain.fullmatch(cleaned) and not self._added_tokens.search(text)
        return cleaned if is_plain else None

    def _offsets_in(self, text: str, cleaned: str) -> list[tuple[int, int]]:
        """The places of a cleaned text's tokens in the text as it was."""
        kept = [place for place, character in enumerate(text) if not self._cleaned_away.match(character)]
        return [(kept[begin], kept[end - 1] + 1) for begin, end in self._offsets(cleaned, [])]

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

    def _ids(self, text: str, added: list[re.Match[str]]) -> list[int]:
        """The ids of a normalised text with such added tokens."""
        ids: list[int] = []
        for start, end, token in _parts(text, added):
            ids.extend(chain.from_iterable(map(self._ids_of_word.__getitem__, self._words.findall(text, start, end))))
            if token is not None:
                ids.append(self._added_ids[token.group()])
        return ids

    def _offsets(self, text: str, added: list[re.Match[str]]) -> list[tuple[int, int]]:
        offsets: list[tuple[int, int]] = []
        for start, end, token in _parts(text, added):
            for word in self._words.finditer(text, start, end):
                begin = word.start()
                for length in self._ids_of_word.lengths(word.group()):
                    offsets.append((begin, begin + length))
                    begin += length
            if token is not None:
                offsets.append(token.span())
        return offsets


class _IdsOfWord(dict[str, tuple[int, ...]]):
    """Word to the ids of its pieces: the words that are one piece are in it, others are found when they are asked for.

    A dict, so that a list of words is looked up without Python in between.
    """

    def __init__(self, token_ids: Mapping[str, int], *, unknown_id: int, prefix: str, max_characters: int) -> None:
        super().__init__({word: (token_id,) for word, token_id in token_ids.items() if len(word) <= max_characters})
        self._token_ids = token_ids
        self._unknown_id = unknown_id
        self._prefix = prefix
        self._max_characters = max_characters
        self._longest_piece = max(map(len, token_ids))
        self._remembered = lru_cache(WORDS_KEPT)(self._find)

    def __missing__(self, word: str) -> tuple[int, ...]:
        return self._pieces(word)[0]

    def lengths(self, word: str) -> tuple[int, ...]:
        """How long the pieces of a word are, in characters."""
        return (len(word),) if word in self else self._pieces(word)[1]

    def _pieces(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return self._remembered(word) if len(word) <= LONGEST_WORD_KEPT else self._find(word)

    def _find(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids and lengths of the pieces, at each place the longest that there is."""
        ids, lengths = [], []
        start, prefix = 0, ""
        while start < len(word) <= self._max_characters:
            for end in range(min(len(word), start + self._longest_piece), start, -1):
                token_id = self._token_ids.get(prefix + word[start:end])
                if token_id is not None:
                    ids.append(token_id)
                    lengths.append(end - start)
                    start, prefix = end, self._prefix
                    break
            else:
                break
        return (tuple(ids), tuple(lengths)) if start == len(word) else ((self._unknown_id,), (len(word),))


def _parts(text: str, added: list[re.Match[str]]) -> Iterator[tuple[int, int, re.Match[str] | None]]:
    """Start and end of what stands between added tokens, each with the token behind it."""
    start = 0
    for token in added:
        yield start, token.start(), token
        start = token.end()
    yield start, len(text), None


def _normalized_letters(*, lowercase: bool, strip_accents: bool) -> dict[str, str]:
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
            letters[chr(letter)] = normalized
    return letters
