"""A short form: every answer right while all kinds of requests share passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.texts import CHECKPOINT
from tests.chaos.run import Footprint
from tests.soak.questions import Reference, all_texts, questions
from tests.soak.run import WINDOWS, Soak, Window, soak

SOME_TEXTS = all_texts()[:30:3]


def test_every_answer_is_right(tmp_path: Path) -> None:
    found = soak(tmp_path, texts=SOME_TEXTS, seconds=6)
    assert not found.faults
    assert set(found.asked) == {"/embed", "/fill-mask", "/next-sentence"}
    assert sum(found.asked.values()) > 2 * len(SOME_TEXTS)
    assert len({window.footprint.descriptors for window in found.windows[WINDOWS // 2 :]}) == 1


def test_a_wrong_answer_is_seen() -> None:
    found = {question.route: question for question in questions(Reference(CHECKPOINT), SOME_TEXTS[-1:])}
    embed, fill_mask, next_sentence = (found[route] for route in ("/embed", "/fill-mask", "/next-sentence"))
    assert embed.fault([[0.0] * 384]) is not None
    assert embed.fault([[0.0] * 383]) == "the shape is (1, 383), not (1, 384)"
    assert fill_mask.fault([{"score": 0.5, "token": 5}] * 5) is not None
    assert fill_mask.fault([]) == "0 predictions, not 5"
    assert next_sentence.fault({"is_next": 2.0}) is not None


def window(*, megabytes: int = 500, p99_ms: float = 20.0, descriptors: int = 9, threads: int = 4) -> Window:
    footprint = Footprint(descriptors=descriptors, threads=threads, resident_bytes=megabytes * 10**6)
    return Window(requests=100, p50_ms=10, p99_ms=p99_ms, footprint=footprint)


@pytest.mark.parametrize(
    ("last", "misses"),
    [
        (window(), []),
        (window(megabytes=509), []),
        (window(megabytes=511), ["resident memory changes by 2.2% in the second half"]),
        (window(descriptors=10), ["descriptors in the second half: [9, 10]"]),
        (window(threads=5), ["threads in the second half: [4, 5]"]),
    ],
)
def test_what_grows_is_a_miss(last: Window, misses: list[str]) -> None:
    assert Soak(seconds=1, windows=[window(megabytes=100)] * 5 + [window()] * 4 + [last]).misses() == misses


@pytest.mark.parametrize(("p99_ms", "misses"), [(21.0, []), (23.0, ["p99 grows by 15.0%"])])
def test_drift_is_a_miss(p99_ms: float, misses: list[str]) -> None:
    assert Soak(seconds=1, windows=[window()] * 7 + [window(p99_ms=p99_ms)] * 3).misses() == misses
