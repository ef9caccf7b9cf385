"""How a request's texts are cut into chunks for the encoding threads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.batching.encoding import CALL_CHARACTERS, CHUNK_CHARACTERS, TARGET_CHARACTERS, Encoder, chunks, costs
from service.batching.submission import Skipped
from service.errors import BackendFailure, DeadlinePassed, EmptyInput, ServiceError
from service.tasks import Decode, Embed, FillMask, FillNextMask, NextSentence, Task, Tokenize
from tests.service.batching.fake_engine import FakeClock, FakeEngine, embed
from tests.service.fake_engine import FakeEncoded


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (FillMask(text="abc"), 103),
        (NextSentence(text="abc", text_pair="defgh"), 108),
        (Embed(text="ab"), 102),
        (Embed(text=(101, 7, 8, 102)), 104),
        (Tokenize(text="abc"), 103),
        (Decode(ids=(101, 7)), 118),
        (FillNextMask(text="abc"), 103),
        (FillNextMask(text="abc", filled=(7, None), encoding=object()), 100),
        (FillNextMask(text="abc", filled=(7, 8), encoding=object()), 103),
    ],
)
def test_costs(task: Task, expected: int) -> None:
    assert list(costs([task])) == [expected]


def test_targets_cost_once_where_texts_share_them() -> None:
    shared, others = ("king", "of"), ("queen",)
    tasks = [FillMask(text="a", targets=targets) for targets in (shared, shared, others, shared)]
    first = CALL_CHARACTERS + 1 + 2 * TARGET_CHARACTERS + len("kingof")
    third = CALL_CHARACTERS + 1 + TARGET_CHARACTERS + len("queen")
    assert list(costs(tasks)) == [first, CALL_CHARACTERS + 1, third, first]


@given(lengths=st.lists(st.integers(1, 2 * CHUNK_CHARACTERS), min_size=1, max_size=9))
def test_chunks_keep_order_and_are_as_long_as_they_may_be(lengths: list[int]) -> None:
    tasks = [Embed(text=(0,) * length) for length in lengths]
    parts = [list(costs(part)) for part in chunks(tasks)]
    assert [cost - CALL_CHARACTERS for part in parts for cost in part] == lengths
    assert all(len(part) == 1 or sum(part) <= CHUNK_CHARACTERS for part in parts)
    for part, following in itertools.pairwise(parts):
        assert sum(part) + following[0] > CHUNK_CHARACTERS


LONG = CHUNK_CHARACTERS // 5
"""Words of a text that is a chunk by itself."""


class TimedEngine(FakeEngine):
    """A text takes a second to encode."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock

    def encode(self, task: Task) -> FakeEncoded:
        self.clock.now += 1
        return super().encode(task)


def outcomes(
    tasks: Sequence[Task], *, seconds: float | None = None, all_or_nothing: bool = False
) -> list[type[FakeEncoded | ServiceError]]:
    """What each task comes to, by type, and that nothing after it was encoded in vain."""

    async def encode() -> list[type[FakeEncoded | ServiceError]]:
        clock = FakeClock()
        engine = TimedEngine(clock)
        encoder = Encoder(engine, clock=clock)
        deadline = None if seconds is None else clock.now + seconds
        encoded = await encoder.encode(tasks, deadline=deadline, all_or_nothing=all_or_nothing)
        encoder.close()
        kinds = [type(one.outcome) for one in encoded]
        assert len(engine.encoded_in) == sum(kind not in (Skipped, DeadlinePassed) for kind in kinds)
        return kinds

    return asyncio.run(encode())


@pytest.mark.parametrize("words", [3, LONG])
def test_a_refusal_ends_a_request_that_is_all_or_nothing(words: int) -> None:
    tasks = [embed(1, tokens=words), Embed(text=""), embed(2, tokens=words), embed(3, tokens=words)]
    assert outcomes(tasks) == [FakeEncoded, EmptyInput, FakeEncoded, FakeEncoded]
    assert outcomes(tasks, all_or_nothing=True) == [FakeEncoded, EmptyInput, Skipped, Skipped]


@pytest.mark.parametrize(("seconds", "encoded"), [(0, 0), (2, 2), (2.5, 3), (4, 4), (9, 4)])
def test_tokenization_ends_at_the_deadline(seconds: float, encoded: int) -> None:
    tasks = [embed(number, tokens=LONG) for number in range(4)]
    assert outcomes(tasks, seconds=seconds) == [FakeEncoded] * encoded + [DeadlinePassed] * (4 - encoded)


def test_a_first_half_costs_once_where_pairs_share_it() -> None:
    text = "a" * 50
    tasks = [NextSentence(text=text, text_pair="b" * number) for number in (1, 2)]
    tasks.append(NextSentence(text="cd", text_pair="b"))
    assert list(costs(tasks)) == [100 + 51, 100 + 2, 100 + 3]


class FailingEngine(FakeEngine):
    """Fails on some texts in a way that is no fault of the request."""

    def encode(self, task: Task) -> FakeEncoded:
        if task == Embed(text="fault"):
            raise RuntimeError("the tokenizers library failed within itself")
        return super().encode(task)


@pytest.mark.parametrize("words", [3, LONG])
def test_a_fault_of_the_tokenizer_is_that_of_its_item_alone(words: int, caplog: pytest.LogCaptureFixture) -> None:
    tasks = [embed(1, tokens=words), Embed(text="fault"), embed(2, tokens=words)]

    async def encode() -> list[type[FakeEncoded | ServiceError]]:
        encoder = Encoder(FailingEngine(), clock=FakeClock())
        encoded = await encoder.encode(tasks, deadline=None, all_or_nothing=False)
        encoder.close()
        return [type(one.outcome) for one in encoded]

    assert asyncio.run(encode()) == [FakeEncoded, BackendFailure, FakeEncoded]
    assert caplog.messages == ["an item could not be tokenized"]
