from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Encoding, Tokenizer

from bert_core import tokenized_text
from bert_core.tokenized_text import TokenizedText, chunk_boundary, chunks
from bert_core.tokenizer_files import read_tokenizer_files
from tests.bert_core.tokenizer_folders import SHIPPED

MASK_ID = 103

ALPHABET = [
    "a",
    "B",
    "é",
    "e\u0301",
    "\u0301",
    "的",
    "한",
    "😃",
    "[MASK]",
    "[",
    "]",
    "[SEP]",
    "MASK",
    ".",
    "-",
    " ",
    "\n",
    "\x00",
]
ALPHABET += ["\u200d", "\u3000", "…", "İ", "Σ", "don't"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return read_tokenizer_files(SHIPPED).build()


def boundary_of(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    return chunk_boundary(tokenizer.get_added_tokens_decoder().values(), split_chinese=True)


def tokenized(tokenizer: Tokenizer, text: str, *, enough: int | None = None) -> TokenizedText:
    tokenize = partial(tokenizer.encode, add_special_tokens=False)
    return TokenizedText(text, tokenize=tokenize, boundary=boundary_of(tokenizer), enough=enough)


@given(parts=st.lists(st.sampled_from(ALPHABET), max_size=60), data=st.data())
def test_chunks_change_nothing(tokenizer: Tokenizer, parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    whole = tokenizer.encode(text, add_special_tokens=False)
    start = data.draw(st.integers(0, len(whole.ids)))
    stop = data.draw(st.integers(start, len(whole.ids)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenized_text, "CHUNK_CHARACTERS", 5)
        tokens = tokenized(tokenizer, text)
        masks = [place for place, token_id in enumerate(whole.ids) if token_id == MASK_ID]
        assert tokens.length == len(whole.ids)
        assert tokens.window(start, stop, offsets=True) == (whole.ids[start:stop], whole.offsets[start:stop])
        assert tokens.window(start, stop, offsets=False) == (whole.ids[start:stop], [])
        assert tokens.span("[MASK]", MASK_ID) == ((masks[0], masks[-1]) if masks else None)


@pytest.mark.parametrize("separator", [" ", ".", "的", "\n"])
def test_memory_is_bounded_by_chunks(tokenizer: Tokenizer, separator: str) -> None:
    text = ("word" + separator) * 20_000
    ranges = list(chunks(text, boundary=boundary_of(tokenizer), characters=1_000))
    assert "".join(text[start:end] for start, end in ranges) == text
    assert max(end - start for start, end in ranges) <= 1_005


def test_a_special_token_is_never_cut(tokenizer: Tokenizer) -> None:
    text = "[MASK]" * 50 + " "
    assert list(chunks(text, boundary=boundary_of(tokenizer), characters=20)) == [(0, 301)]


def test_the_name_of_a_token_is_no_occurrence_of_its_id(tokenizer: Tokenizer) -> None:
    assert tokenized(tokenizer, "the mask").span("mask", MASK_ID) is None


def test_enough_stops_reading(tokenizer: Tokenizer) -> None:
    seen: list[int] = []

    def tokenize(text: str) -> Encoding:
        seen.append(len(text))
        return tokenizer.encode(text, add_special_tokens=False)

    text = "the " * 40_000
    tokens = TokenizedText(text, tokenize=tokenize, boundary=boundary_of(tokenizer), enough=510)
    assert len(seen) == 1
    assert 510 < tokens.length < 5_000
    assert tokens.window(0, 510, offsets=True) == ([1996] * 510, [(4 * place, 4 * place + 3) for place in range(510)])


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("ent", normalized=True),
        AddedToken("ent", normalized=False, single_word=True),
        AddedToken("ent", normalized=False, lstrip=True),
        AddedToken("ent", normalized=False, rstrip=True),
        AddedToken("en t", normalized=False),
    ],
)
def test_added_tokens_that_look_around_rule_out_chunks(token: AddedToken) -> None:
    assert chunk_boundary([token], split_chinese=True) is None
    assert list(chunks("a b c", boundary=None, characters=2)) == [(0, 5)]


def test_chinese_is_a_boundary_only_where_it_is_split() -> None:
    token = AddedToken("[MASK]", normalized=False)
    split, whole = (chunk_boundary([token], split_chinese=flag) for flag in (True, False))
    assert split is not None
    assert whole is not None
    assert split.findall("a的.] ") == ["的", ".", " "]
    assert whole.findall("a的.] ") == [".", " "]
