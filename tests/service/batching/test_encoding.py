"""How a request's texts are cut into chunks for the encoding threads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.encoding import CALL_CHARACTERS, CHUNK_CHARACTERS, characters, chunks
from service.tasks import Embed, FillMask, NextSentence, Task


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (FillMask(text="abc"), 103),
        (NextSentence(text="abc", text_pair="defgh"), 108),
        (Embed(text="ab"), 102),
        (Embed(text=(101, 7, 8, 102)), 104),
    ],
)
def test_characters(task: Task, expected: int) -> None:
    assert characters(task) == expected


@given(lengths=st.lists(st.integers(1, 2 * CHUNK_CHARACTERS), min_size=1, max_size=9))
def test_chunks_keep_order_and_are_as_long_as_they_may_be(lengths: list[int]) -> None:
    tasks = [Embed(text=(0,) * length) for length in lengths]
    parts = [[characters(task) for task in part] for part in chunks(tasks)]
    assert [cost - CALL_CHARACTERS for part in parts for cost in part] == lengths
    assert all(len(part) == 1 or sum(part) <= CHUNK_CHARACTERS for part in parts)
    for part, following in itertools.pairwise(parts):
        assert sum(part) + following[0] > CHUNK_CHARACTERS
