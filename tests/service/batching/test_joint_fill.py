"""The beam search, against a model that is a table; no batcher runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from service.batching.joint_fill import fill_jointly
from service.batching.submission import Entry, Skipped
from service.errors import BackendFailure, DeadlinePassed, ServiceError
from service.tasks import (
    Answer,
    FilledText,
    FillNextMask,
    JointFillResult,
    NextMaskResult,
    PassRecord,
    Task,
    Timing,
)

Filled = tuple[int | None, ...]
Table = dict[Filled, tuple[int, dict[int, float]]]
"""What stands at the masks, to the mask that is the most certain and its candidates' probabilities."""

TABLE: Table = {
    (): (1, {5: 0.5, 6: 0.4, 7: 0.1}),
    (None, 5): (0, {8: 0.3, 9: 0.2}),
    (None, 6): (0, {9: 0.9, 8: 0.05}),
    (None, 7): (0, {8: 0.99, 9: 0.01}),
}


def answer(result: NextMaskResult | FilledText, *, slow: float = 1.0) -> Answer:
    passes = (PassRecord(items=2, tokens=20, started=slow, finished=slow + 4),) if slow else ()
    return Answer(
        result=result,
        timing=Timing(tokenization=slow, queue=2 * slow, inference=4 * slow),
        compute_tokens=10,
        passes=passes,
    )


def looked_up(task: Task, *, table: Table = TABLE, masks: int = 2) -> Entry:
    assert isinstance(task, FillNextMask)
    if task.filled and None not in task.filled:
        pieces = tuple(str(token) for token in task.filled)
        return answer(
            FilledText(sequence=f"{task.text}{'-'.join(pieces)}", token_strs=pieces, tokens=4, truncated=True)
        )
    mask, probabilities = table[task.filled]
    candidates = tuple((token, math.log(probability)) for token, probability in probabilities.items())
    return answer(
        NextMaskResult(
            mask=mask, masks=masks, candidates=candidates[: task.top_k], tokens=4, truncated=True, encoding="encoded"
        ),
        slow=1.0 if task.filled[-1:] != (6,) else 3.0,
    )


def run(
    tasks: Sequence[FillNextMask], look_up: Callable[[Task], Entry] = looked_up
) -> tuple[list[Entry], list[list[FillNextMask]]]:
    """What the tasks come to, and what was asked in each round."""
    rounds = fill_jointly(tasks)
    asked: list[list[FillNextMask]] = []
    try:
        wanted = next(rounds)
        while True:
            asked.append([task for task in wanted if isinstance(task, FillNextMask)])
            wanted = rounds.send([look_up(task) for task in wanted])
    except StopIteration as end:
        return end.value, asked


def result_of(entry: Entry) -> JointFillResult:
    assert isinstance(entry, Answer)
    assert isinstance(entry.result, JointFillResult)
    return entry.result


def scores_of(entry: Entry) -> dict[tuple[int, ...], float]:
    """By the ids that were put in, in the order of the answer."""
    return {found.token_ids: found.score for found in result_of(entry).predictions}


def assert_scores(entry: Entry, expected: dict[tuple[int, ...], float]) -> None:
    assert scores_of(entry) == pytest.approx(expected)
    assert [*scores_of(entry)] == [*expected]


def test_the_most_probable_texts_of_the_beam_win() -> None:
    [entry], asked = run([FillNextMask(text="x", top_k=2)])
    assert_scores(entry, {(9, 6): 0.4 * 0.9, (8, 5): 0.5 * 0.3})
    best = result_of(entry).predictions[0]
    assert (best.token_strs, best.sequence) == (("9", "6"), "x9-6")
    assert (result_of(entry).tokens, result_of(entry).truncated) == (4, True)
    assert [[task.filled for task in tasks] for tasks in asked] == [[()], [(None, 5), (None, 6)], [(9, 6), (8, 5)]]


def test_a_beam_of_one_is_greedy() -> None:
    [entry], asked = run([FillNextMask(text="x", top_k=1)])
    assert_scores(entry, {(8, 5): 0.5 * 0.3})
    assert [len(tasks) for tasks in asked] == [1, 1, 1]


def test_a_beam_wider_than_there_are_candidates_finds_all() -> None:
    [entry], _ = run([FillNextMask(text="x", top_k=50)])
    assert_scores(entry, {(9, 6): 0.36, (8, 5): 0.15, (9, 5): 0.1, (8, 7): 0.099, (8, 6): 0.02, (9, 7): 0.001})


def test_steps_add_up_and_within_one_the_slowest_decides() -> None:
    [entry], _ = run([FillNextMask(text="x", top_k=2)])
    assert isinstance(entry, Answer)
    assert entry.timing == Timing(tokenization=1 + 3 + 1, queue=2 * 5, inference=4 * 5)
    assert entry.compute_tokens == 10 * (1 + 2 + 2)
    assert [each.started for each in entry.passes] == [1, 3]


def test_texts_of_different_length_go_side_by_side() -> None:
    one_mask: Table = {(): (0, {3: 0.75, 4: 0.25})}

    def look_up(task: Task) -> Entry:
        assert isinstance(task, FillNextMask)
        return looked_up(task, table=one_mask, masks=1) if task.text == "y" else looked_up(task)

    entries, asked = run([FillNextMask(text="x", top_k=2), FillNextMask(text="y", top_k=2)], look_up)
    assert [len(tasks) for tasks in asked] == [2, 4, 2]
    assert [found.sequence for found in result_of(entries[0]).predictions] == ["x9-6", "x8-5"]
    assert_scores(entries[1], {(3,): 0.75, (4,): 0.25})


@pytest.mark.parametrize("error", [BackendFailure("no"), DeadlinePassed("late"), Skipped()])
@pytest.mark.parametrize("at", [(), (None, 6), (8, 5)])
def test_a_text_that_fails_in_any_step_fails_alone(error: ServiceError, at: Filled) -> None:
    def look_up(task: Task) -> Entry:
        assert isinstance(task, FillNextMask)
        return error if (task.text, task.filled) == ("bad", at) else looked_up(task)

    entries, _ = run([FillNextMask(text="bad", top_k=2), FillNextMask(text="x", top_k=2)], look_up)
    assert entries[0] is error
    assert len(result_of(entries[1]).predictions) == 2


def test_later_steps_bring_the_encoding_of_the_first_along() -> None:
    rounds = fill_jointly([FillNextMask(text="", top_k=2)])
    first = next(rounds)
    second = rounds.send([looked_up(task) for task in first])
    third = rounds.send([looked_up(task) for task in second])
    encodings = [{getattr(task, "encoding", None) for task in tasks} for tasks in (first, second, third)]
    assert encodings == [{None}, {"encoded"}, {"encoded"}]
