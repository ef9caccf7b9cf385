"""Sentences end where a reader would say so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_core.pretraining.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It rained. We stayed in.", ["It rained.", "We stayed in."]),
        ("Is it? Yes! It is… Good.", ["Is it?", "Yes!", "It is…", "Good."]),
        ("Mr. Smith met Dr. Jones at 5 p.m. They talked.", ["Mr. Smith met Dr. Jones at 5 p.m. They talked."]),
        ("J. R. R. Tolkien wrote it. Then he rested.", ["J. R. R. Tolkien wrote it.", "Then he rested."]),
        ("“Come in.” He came.", ["“Come in.”", "He came."]),
        ("He paid 3.50 for it. That was much.", ["He paid 3.50 for it.", "That was much."]),
        ("e.g. this one. And that.", ["e.g. this one.", "And that."]),
        ("今天下雨。我们在家！好吗？好；走吧。", ["今天下雨。", "我们在家！", "好吗？", "好；", "走吧。"]),
        ("他说：“来吧。”我们走了。", ["他说：“来吧。”", "我们走了。"]),
        ("no stop at the end", ["no stop at the end"]),
        ("He stayed... and then left.", ["He stayed... and then left."]),
        ("Élan vital. Über alles. Ça va.", ["Élan vital.", "Über alles.", "Ça va."]),
        ("In 1999. 2000 came next.", ["In 1999.", "2000 came next."]),
        ("   ", []),
        ("", []),
    ],
)
def test_a_paragraph_is_cut_into_its_sentences(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize("text", ["." * 500_000 + "a", "a" * 500_000 + ". B", "x. a " * 100_000])
@pytest.mark.timeout(20)
def test_time_grows_with_the_length_alone(text: str) -> None:
    assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "")


@given(st.text(alphabet='aB .!?。！"”’ \t\n1', max_size=80))
def test_no_character_but_white_space_is_lost(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
