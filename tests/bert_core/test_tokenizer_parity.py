"""The same ids as `transformers` 5, on the shipped vocabulary and on tiny ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast as Reference

from bert_core.tokenizer import BertTokenizer
from tests.bert_core.tokenizer_folders import SHIPPED, pipeline, write_json, write_vocabulary

WORDS = ["the", "Hello", "unaffable", "ÉCOLE", "naïve", "İstanbul", "ΣΊΣΥΦΟΣ", "ß", "ﬁ", "don't", "a" * 99, "b" * 101]
SCRIPTS = [
    "的人",
    "日本語パンダ",
    "한국어",
    "अपने",
    "ไทยุ",
    "שָׁלוֹם",
    "مرحبا",
    "йод",
    "ｆｕｌｌ",
    "𝒳𝟙",
    "𠀀",
    "豈",
    "ﷺ",
    "ǅ",
]
MARKS = ["\u0301", "\u0327", "\u0345", "\u05b0", "\u3099", "e\u0301", "\u1e9b\u0323", "\u0f73", "\U0001d165"]
EMOJI = ["😃", "👩‍💻", "🇫🇷", "☃", "🥱", "\U0001fae9", "❤️", "\u0378"]
CONTROLS = [
    "\x00",
    "\t",
    "\r",
    "\x1c",
    "\x7f",
    "\x85",
    "\u00a0",
    "\u00ad",
    "\u200b",
    "\u200d",
    "\u2028",
    "\u3000",
    "\ufeff",
]
CONTROLS += ["\ufffd", "\ue000", "\ufdd0", "\U0010ffff", "\u180e", "\u202e", "\u2060"]
SYMBOLS = [*"!\"#$%&'()*+-/<=>@[]^_`{|}~.,", "£", "°", "…", "“", "。", "、", "⁉", "##", "##ing", "©"]
SPECIAL = ["[MASK]", "[SEP]", "[CLS]", "[PAD]", "[UNK]", "[mask]", "[ MASK ]", "[MA", "SK]", "[[MASK]]", "[unused7]"]

texts = st.lists(
    st.one_of(
        st.sampled_from([" ", *WORDS, *SCRIPTS, *MARKS, *EMOJI, *CONTROLS, *SYMBOLS, *SPECIAL]),
        st.characters(exclude_categories=["Cs"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    max_size=24,
).map("".join)

TINY = [*"abcdefghijklmnopqrstuvwxyz", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
TINY += [
    "Hello",
    "hello",
    "É",
    "é",
    "e",
    "e\u0301",
    "##\u0301",
    "的",
    "##人",
    "人",
    "ß",
    "Σ",
    "σ",
    "ς",
    ".",
    "[",
    "]",
    "mask",
]


@pytest.fixture(scope="module")
def shipped() -> tuple[BertTokenizer, Any]:
    return BertTokenizer.from_pretrained(SHIPPED), Reference.from_pretrained(SHIPPED)


@pytest.fixture(
    scope="module",
    params=[
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
        {"do_lower_case": True, "strip_accents": False},
    ],
    ids=str,
)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[BertTokenizer, Any]:
    folder = write_vocabulary(tmp_path_factory.mktemp("tiny"), *TINY)
    write_json(folder, "tokenizer_config.json", request.param)
    return BertTokenizer.from_pretrained(folder), Reference.from_pretrained(folder)


def same(pair: tuple[BertTokenizer, Any], text: str, text_pair: str | None = None) -> None:
    ours, reference = pair
    expected = reference(text, text_pair)
    if text_pair is None:
        found = ours.encode(text, max_length=30_000)
    else:
        found = ours.encode_pair(text, text_pair, max_length=10_000)
    assert found.ids == expected["input_ids"]
    assert found.segment_ids == expected["token_type_ids"]


@settings(max_examples=300)
@given(text=texts)
def test_ids_of_the_shipped_vocabulary(shipped: tuple[BertTokenizer, Any], text: str) -> None:
    same(shipped, text)


@settings(max_examples=60)
@given(text=texts, text_pair=texts.filter(bool))
def test_pairs(shipped: tuple[BertTokenizer, Any], text: str, text_pair: str) -> None:
    same(shipped, text, text_pair)


@given(text=texts)
def test_ids_of_cased_and_mixed_vocabularies(tiny: tuple[BertTokenizer, Any], text: str) -> None:
    same(tiny, text)


@pytest.mark.parametrize("text", [*WORDS, *SCRIPTS, *MARKS, *EMOJI, *CONTROLS, *SYMBOLS, *SPECIAL])
def test_each_hard_part_between_letters(shipped: tuple[BertTokenizer, Any], text: str) -> None:
    same(shipped, f"a{text}b {text} c")


def test_long_text_in_chunks(shipped: tuple[BertTokenizer, Any]) -> None:
    parts = [*WORDS, *SCRIPTS, *MARKS, *EMOJI, *CONTROLS, *SYMBOLS, *SPECIAL]
    same(shipped, "".join(part + (" ", "")[place % 3 == 0] for place, part in enumerate(parts * 150)))


@given(text=texts)
def test_decoding(shipped: tuple[BertTokenizer, Any], text: str) -> None:
    ours, reference = shipped
    ids = ours.encode(text, max_length=10_000).ids
    assert ours.decode(ids) == reference.decode(ids, clean_up_tokenization_spaces=False)
    skipped = reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert ours.decode(ids, skip_special_tokens=True) == skipped


def test_ties_of_a_pair_cut_the_second_half(shipped: tuple[BertTokenizer, Any]) -> None:
    """The reference cuts the first half there, (254, 255); google-research/bert and we keep (255, 254)."""
    ours, reference = shipped
    half = "the " * 300
    expected = reference(half, half, truncation=True, max_length=512)["token_type_ids"]
    found = ours.encode_pair(half, half, max_length=512, truncate="right").segment_ids
    assert (expected.count(0), expected.count(1)) == (256, 256)
    assert (found.count(0), found.count(1)) == (257, 255)


def test_an_empty_second_half(shipped: tuple[BertTokenizer, Any]) -> None:
    """The reference takes it for a single text; a pair stays a pair with us."""
    ours, reference = shipped
    assert reference("a", "")["token_type_ids"] == [0, 0, 0]
    assert ours.encode_pair("a", "", max_length=9).segment_ids == [0, 0, 0, 1]


def test_a_cased_pipeline_without_a_config_stays_cased(tmp_path: Path) -> None:
    """The reference lower-cases unless tokenizer_config.json says otherwise; we do what tokenizer.json says."""
    normalizer = pipeline()["normalizer"] | {"lowercase": False}
    write_json(tmp_path, "tokenizer.json", pipeline("Hello", "hello", normalizer=normalizer))
    assert Reference.from_pretrained(tmp_path)("Hello")["input_ids"] == [2, 6, 3]
    assert BertTokenizer.from_pretrained(tmp_path).encode("Hello", max_length=5).ids == [2, 5, 3]


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"do_lower_case": False}, "[UNK] , world . [UNK] are you ?"), ({}, "hello , world . how are you ?")],
)
def test_the_config_wins_over_the_pipeline(tmp_path: Path, config: dict[str, bool], expected: str) -> None:
    pieces = ["hello", ",", "world", ".", "how", "are", "you", "?"]
    write_json(tmp_path, "tokenizer.json", pipeline(*pieces))
    write_json(tmp_path, "tokenizer_config.json", config)
    ours, reference = BertTokenizer.from_pretrained(tmp_path), Reference.from_pretrained(tmp_path)
    text = "Hello, world. How are you?"
    same((ours, reference), text)
    assert [ours.id_to_token(token_id) for token_id in ours.pieces(text)] == expected.split()


@pytest.mark.parametrize(
    "content",
    [
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\na\nc",
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n\nb\n\nc\n",
        "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na\r\nb\r\nc\r\n",
        "a \nb\t\n[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nx\u2028y\nc",
    ],
)
def test_odd_vocabulary_files(tmp_path: Path, content: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(content.encode())
    same((BertTokenizer.from_pretrained(tmp_path), Reference.from_pretrained(tmp_path)), "a b c [MASK] d")
