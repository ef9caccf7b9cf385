from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest

from service.api import task_runner as runner
from service.api.offload import LARGE_CHARACTERS, Offload, characters_of
from service.errors import BackendFailure, InvalidInput, ServiceError
from service.tasks import (
    Answer,
    DecodeResult,
    EmbedAllResult,
    EmbedResult,
    EmbedSparseResult,
    FillMaskResult,
    JointFillResult,
    JointPrediction,
    MaskPredictions,
    NextSentenceResult,
    Prediction,
    Result,
    Timing,
    TokenizeResult,
)
from tests.service.serving import serving


@pytest.mark.parametrize(("characters", "in_thread"), [(LARGE_CHARACTERS - 1, False), (LARGE_CHARACTERS, True)])
def test_what_is_large_is_done_in_a_thread(characters: int, in_thread: bool) -> None:
    done_in = asyncio.run(Offload().call(threading.get_ident, characters=characters))
    assert (done_in != threading.get_ident()) == in_thread


def test_one_large_thing_is_done_at_a_time_and_the_loop_goes_on() -> None:
    running = 0

    def work() -> int:
        nonlocal running
        running += 1
        assert let_go.wait(10)
        running -= 1
        return running

    async def run() -> list[int]:
        offload = Offload()
        calls = asyncio.gather(*(offload.call(work, characters=LARGE_CHARACTERS) for _ in range(3)))
        await asyncio.sleep(0.02)
        assert running == 1
        let_go.set()
        return await calls

    let_go = threading.Event()
    assert asyncio.run(run()) == [0, 0, 0]


def test_a_fault_that_is_found_in_a_thread_is_raised() -> None:
    def fail() -> None:
        raise InvalidInput("is wrong")

    with pytest.raises(InvalidInput, match="^is wrong$"):
        asyncio.run(Offload().call(fail, characters=LARGE_CHARACTERS))


def vector(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.zeros(shape, dtype=np.float32)


def mask(sequences: int) -> MaskPredictions:
    one = Prediction(score=0.5, token=1, token_str="a", sequence="x" * 1000)
    return MaskPredictions(position=1, predictions=(one,) * sequences)


@pytest.mark.parametrize(
    ("make", "about"),
    [
        (lambda n: EmbedResult(vector=vector(n), tokens=1, truncated=False), 12),
        (lambda n: EmbedAllResult(vectors=vector(n, 7), tokens=1, truncated=False), 7 * 12),
        (lambda n: EmbedSparseResult(indices=np.arange(n), values=vector(n), tokens=1, truncated=False), 24),
        (
            lambda n: TokenizeResult(text="", ids=np.arange(n), offsets=np.zeros((n, 2), np.int64), special_tokens=()),
            100,
        ),
        (lambda n: DecodeResult(text="a" * n), 1),
        (lambda n: FillMaskResult(masks=(mask(n), mask(n)), tokens=1, truncated=False), 2 * 1100),
        (
            lambda n: JointFillResult(
                predictions=(JointPrediction(score=0.5, token_ids=(1, 2), token_strs=("a", "b"), sequence="x" * 99),)
                * n,
                tokens=1,
                truncated=False,
            ),
            299,
        ),
    ],
)
def test_the_length_of_an_answer_is_known_before_it_is_written(make: Callable[[int], Result], about: int) -> None:
    for size in (1, 13):
        assert characters_of([Answer(result=make(size), timing=Timing(), compute_tokens=1)]) == size * about


def test_short_answers_add_up() -> None:
    pair = NextSentenceResult(is_next=1.0, not_next=0.0, logits=(1.0, 0.0), tokens=1, truncated=False)
    answers: list[Answer | ServiceError] = [
        Answer(result=pair, timing=Timing(), compute_tokens=1),
        BackendFailure("no"),
    ]
    assert characters_of([*answers] * 1000) == 200_000


@pytest.mark.parametrize("words", [1, 40_000])
def test_a_long_body_and_a_long_answer_leave_the_event_loop_free(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[bool] = []

    def noted(name: str) -> None:
        original: Callable[..., object] = getattr(runner, name)

        def call(*arguments: object) -> object:
            try:
                asyncio.get_running_loop()
                loops.append(True)
            except RuntimeError:
                loops.append(False)
            return original(*arguments)

        monkeypatch.setattr(runner, name, call)

    for name in ("parse_body", "dump", "dump_in_pieces"):
        noted(name)
    with serving() as client:
        answer = client.post("/tokenize", json={"inputs": "words " * words})
    assert len(answer.json()[0]) == words + 2
    assert loops == [words == 1] * 2
