from __future__ import annotations

from service.engine.encoding import ALL_ROWS, EncodedTask, Sequence
from service.engine.memory import PassLimit
from service.tasks import Embed


def tasks_of(*lengths: int) -> list[EncodedTask]:
    sequences = [Sequence([1] * length, [0] * length, ALL_ROWS) for length in lengths]
    return [EncodedTask(task=Embed(text="x"), sequences=(sequence,), pooling="mean") for sequence in sequences]


def sizes(limit: PassLimit, *lengths: int) -> list[list[int]]:
    return [[task.compute_tokens for task in part] for part in limit.parts(tasks_of(*lengths))]


def test_without_trouble_a_batch_is_one_pass() -> None:
    limit = PassLimit()
    limit.pass_fitted()
    assert limit.tokens is None
    assert sizes(limit, 5, 700, 13) == [[5, 700, 13]]


def test_half_of_what_did_not_fit_is_the_limit() -> None:
    limit = PassLimit()
    limit.memory_ran_out(tokens=40)
    assert sizes(limit, 7, 13, 1, 19, 30, 2, 5) == [[7, 13], [1, 19], [30], [2, 5]]


def test_the_limit_grows_back_and_goes() -> None:
    limit = PassLimit()
    limit.memory_ran_out(tokens=1000)
    seen = []
    while limit.tokens is not None:
        seen.append(limit.tokens)
        limit.pass_fitted()
    assert seen == sorted(set(seen))
    assert seen[0] == 500
    assert seen[-1] < 1000
    assert 30 < len(seen) < 40
