"""Ids and offsets of plain text are the library's; what is not plain is left to it."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Encoding, Tokenizer

from bert_core.added_tokens import added_token
from bert_core.plain_text import LONGEST_WORD_KEPT, WORDS_KEPT, PlainText, PlainTokens
from bert_core.tokenizer_files import read_tokenizer_files
from tests.bert_core.tokenizer_folders import SHIPPED

# The flags of the normaliser and of the model that make a difference, or might.
PIPELINES: dict[str, dict[str, Any]] = {
    "uncased": {},
    "cased": {"lowercase": False},
    "uncased with accents": {"strip_accents": False},
    "cased without accents": {"lowercase": False, "strip_accents": True},
    "not cleaned": {"clean_text": False, "handle_chinese_chars": False},
    "short words": {"max_input_chars_per_word": 5},
    "other prefix": {"continuing_subword_prefix": "a"},
    "added": {"added_tokens": ("ing", "covid", "ing-", "X")},
}
PIECES = [
    *("the", "The", "running", "unaffable", "zzz", "Qx7", "3.14", "don't", "naïve", "ÉCOLE", "straße", "Łódź", "ŒUVRE"),
    *(" ", "  ", "\n", "\t", "\u00a0", ".", "…", "“", "”", "’", "—", "##", "[", "]", "a" * 101),
    *("[MASK]", "[SEP]", "[mask]", "ing", "ing-", "covid", "X"),
]

LATIN = [*map(chr, (*range(0x20, 0x7F), *range(0xA0, 0x180), *range(0x2010, 0x203B)))]


@cache
def made(name: str) -> tuple[PlainText, Tokenizer]:
    description = read_tokenizer_files(SHIPPED)
    changes = PIPELINES[name]
    tokens = [*description.added_tokens]
    token_ids = {**description.token_ids}
    for content in changes.get("added_tokens", ()):
        token_id = token_ids.setdefault(content, len(token_ids))
        tokens.append(added_token({"content": content, "normalized": False}, token_id=token_id))
    description = replace(
        description,
        token_ids=token_ids,
        added_tokens=tokens,
        normalizer={key: changes.get(key, value) for key, value in description.normalizer.items()},
        model={key: changes.get(key, value) for key, value in description.model.items()},
    )
    return PlainText(description), description.build()


def is_plain(name: str, text: str) -> bool:
    """Whether it is; and if so, sees that the tokens are right."""
    plain, library = made(name)
    tokens = plain.tokenize(text)
    if tokens is None:
        return False
    expected = library.encode(text, add_special_tokens=False)
    assert (tokens.ids, tokens.offsets) == (expected.ids, expected.offsets), repr(text)
    assert len(tokens) == len(expected)
    return True


@pytest.mark.parametrize("name", PIPELINES)
@given(text=st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example(text="")
@example(text="unaffable“Unaffable”  ##able covid-19")
def test_plain_text_has_the_tokens_that_the_library_finds(name: str, text: str) -> None:
    assert is_plain(name, text)


@pytest.mark.parametrize("name", PIPELINES)
@given(text=st.text(st.sampled_from(LATIN) | st.characters(max_codepoint=0x2100), max_size=20))
def test_so_has_any_text_that_is_taken_for_plain(name: str, text: str) -> None:
    is_plain(name, text)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_character_alone_and_within_a_word(name: str) -> None:
    highest = sys.maxunicode if name in {"uncased", "cased"} else 0x2100
    characters = [chr(code) for code in range(highest + 1) if not 0xD800 <= code < 0xE000]
    plain = [character for character in characters if is_plain(name, character)]
    assert {*map(chr, range(0x20, 0x7F)), "\n", "é", "ü", "É", "“", "—"} <= {*plain}
    assert not {"\x00", "\u00ad", "\u200b", "\u2060", "\u0301", "的", "е", "😃"} & {*plain}
    for character in plain:
        assert is_plain(name, f"ru{character}ing a{character}{character} {character}b")


def most_is_plain(name: str, text: str) -> bool:
    """Whether it is but for a few words; and if so, sees that the tokens are right."""
    plain, library = made(name)
    words: list[str] = []

    def otherwise(word: str) -> Encoding:
        words.append(word)
        return library.encode(word, add_special_tokens=False)

    tokens = plain.tokenize_most(text, otherwise=otherwise)
    if tokens is None:
        return False
    expected = library.encode(text, add_special_tokens=False)
    assert (tokens.ids, tokens.offsets) == (expected.ids, expected.offsets), repr(text)
    assert len(tokens) == len(expected)
    assert not any(plain.tokenize(word) is not None or set(word) & set("\t\n\r \u00a0") for word in words)
    return True


@pytest.mark.parametrize("name", PIPELINES)
def test_every_character_in_an_odd_word_of_plain_text(name: str) -> None:
    most = 0x2100 if name in {"uncased", "cased"} else 0x400
    codes = [*range(most), *range(most, sys.maxunicode + 1, 397), 0x2003, 0x3000, 0xFEFF, 0xFFFD]
    before, behind = "The running covid-19 of Łódź, unaffable. " * 2, "\tdon't [MASK] the ÉCOLE\u00a0… " * 2
    for code in codes:
        if not 0xD800 <= code < 0xE000:
            odd = chr(code)
            assert most_is_plain(name, f"{before}ru{odd}ing[MASK]{odd} {odd}{behind}"), code


@pytest.mark.parametrize("name", PIPELINES)
def test_every_character_in_text_without_added_tokens(name: str) -> None:
    most = 0x2100 if name in {"uncased", "not cleaned"} else 0x180
    for code in [*range(most), *range(most, sys.maxunicode + 1, 997), *range(0x2000, 0x2070), 0x3000, 0xFEFF, 0xFFFD]:
        if not 0xD800 <= code < 0xE000:
            odd = chr(code)
            text = f"The r{odd}ned of Łódź, unaffable ru{odd}ns {odd}. {'The runner of Łódź. ' * 14}{odd}{odd}a"
            assert is_plain(name, text) or most_is_plain(name, text), code


@pytest.mark.parametrize("odd", ["\u00ad", "\u2060", "\x00", "\u200d", "\u202e", "\ufeff"])
def test_what_is_cleaned_away_costs_no_word_by_the_library(odd: str) -> None:
    plain, library = made("uncased")

    def otherwise(text: str) -> Encoding:
        raise AssertionError(repr(text))

    text = f"The run{odd}ning, {odd} of{odd}"
    tokens = plain.tokenize_most(text, otherwise=otherwise)
    assert tokens is not None
    assert tokens.ids == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", ["uncased", "added"])
@pytest.mark.parametrize(
    "text", ["[MA\u2060SK] a", "[MASK] \u2060a", "i\u2060ng", "ing\u2060-", "co\u2060vid covid", "X\u2060", "\u2060Xa"]
)
def test_added_tokens_are_matched_before_anything_is_cleaned_away(name: str, text: str) -> None:
    assert most_is_plain(name, text + " and so on" * 20)


def test_words_of_several_pieces_are_remembered_unless_they_are_long() -> None:
    plain, _ = made("uncased")
    remembered = plain._ids_of_word._remembered
    assert remembered.cache_info().maxsize == WORDS_KEPT
    remembered.cache_clear()
    for text in ("unaffable the unaffable", "z" * LONGEST_WORD_KEPT, "z" * (LONGEST_WORD_KEPT + 1), "a" * 2_000):
        assert is_plain("uncased", text)
    assert remembered.cache_info().currsize == 2
    hits = remembered.cache_info().hits
    plain.tokenize("unaffable")
    assert remembered.cache_info().hits == hits + 1


@pytest.mark.parametrize("name", PIPELINES)
@given(
    parts=st.lists(
        st.sampled_from(
            [*PIECES, "the running of words. " * 4, "\u00ad", "\u2060", "的", "\u0301", "е", "\x00", "\u2003"]
        ),
        max_size=40,
    )
)
def test_text_with_a_few_odd_words_has_the_tokens_that_the_library_finds(name: str, parts: list[str]) -> None:
    most_is_plain(name, "".join(parts))


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("的" + "a " * 32, True),
        ("的" + "a " * 31, False),
        ("的 " + "a" * 60 + " 的" + " a" * 33, True),
        ("的 " + "a" * 59 + " 的" + " a" * 32, False),
        ("x" * 100 + "的 " + "a " * 50, True),
        ("x" * 100 + "的 " + "a " * 49, False),
    ],
)
def test_many_odd_words_are_left_to_the_library_with_all_else(text: str, most: bool) -> None:
    assert most_is_plain("uncased", text) == most


def test_time_grows_no_faster_than_the_text() -> None:
    plain, _ = made("uncased")
    empty = PlainTokens([], list)

    def seconds(text: str) -> float:
        began = time.thread_time()
        plain.tokenize_most(text, otherwise=lambda _: empty)
        return time.thread_time() - began

    for unit in ("a" * 70 + " 的 ", "a" * 70 + " 的" + "的" * 30 + " ", "a" * 73):
        short, long = (unit * count + "的" for count in (300, 6_000))
        assert min(seconds(long) for _ in range(2)) < 20 * 4 * min(seconds(short) for _ in range(5)) + 1e-3, unit


def test_a_lone_surrogate_is_not_plain() -> None:
    assert not is_plain("uncased", "a\ud800")
