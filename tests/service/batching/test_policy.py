"""The queue's rules, without threads or an event loop."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batching.policy import Admission, DrainRate, PassSize, QueueLimits, Ticket, WaitingQueue


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    name: str
    compute_tokens: int = 1
    answer_characters: int = 0


def queue_with(
    *, max_batch_tokens: int = 100, max_concurrent_requests: int = 1000, max_queue_tokens: int = 10_000
) -> WaitingQueue[Piece]:
    return WaitingQueue(
        QueueLimits(
            max_concurrent_requests=max_concurrent_requests,
            max_queue_tokens=max_queue_tokens,
            max_batch_tokens=max_batch_tokens,
        )
    )


def pieces(name: str, *tokens: int) -> list[Piece]:
    return [Piece(f"{name}{position}", cost) for position, cost in enumerate(tokens)]


def names(items: list[Piece]) -> str:
    return " ".join(item.name for item in items)


@pytest.mark.parametrize(
    "name", ["max_concurrent_requests", "max_queue_tokens", "max_batch_tokens", "max_answer_characters"]
)
def test_limits_below_one_are_refused_by_name(name: str) -> None:
    allowed = {"max_concurrent_requests": 1, "max_queue_tokens": 1, "max_batch_tokens": 1}
    QueueLimits(**allowed)
    with pytest.raises(ValueError, match=f"^{name}: 0 is not allowed; it must be at least 1$"):
        QueueLimits(**(allowed | {name: 0}))


@pytest.mark.parametrize(
    ("items", "tokens", "expected"),
    [
        (3, 10, Admission.ACCEPTED),
        (4, 10, Admission.QUEUE_FULL),
        (3, 11, Admission.QUEUE_FULL),
        (7, 30, Admission.QUEUE_FULL),
        (8, 1, Admission.NEVER_FITS),
        (1, 31, Admission.NEVER_FITS),
    ],
)
def test_admission_counts_unanswered_items_and_waiting_tokens(items: int, tokens: int, expected: Admission) -> None:
    queue = queue_with(max_concurrent_requests=7, max_queue_tokens=30, max_batch_tokens=5)
    queue.add(pieces("a", 2, 3, 11, 9), client="x", deadline=None)
    running = queue.take_batch(now=0)
    assert names(running.items) == "a0 a1"  # still unanswered, but no longer waiting: 4 items, 20 tokens
    assert queue.admission(items=items, tokens=tokens) is expected


def test_an_ended_pass_makes_room() -> None:
    queue = queue_with(max_concurrent_requests=2)
    queue.add(pieces("a", 5, 6), client="x", deadline=None)
    batch = queue.take_batch(now=0)
    assert (queue.running_items, queue.running_tokens) == (2, 11)
    assert queue.admission(items=1, tokens=1) is Admission.QUEUE_FULL
    queue.finished(batch)
    assert (queue.running_items, queue.running_tokens) == (0, 0)
    assert queue.admission(items=2, tokens=1) is Admission.ACCEPTED


def test_clients_take_turns_and_so_do_a_client_s_requests() -> None:
    queue = queue_with()
    queue.add(pieces("a", 1, 1, 1), client="bulk", deadline=None)
    queue.add(pieces("b", 1, 1), client="bulk", deadline=None)
    queue.add(pieces("c", 1), client="single", deadline=None)
    queue.add(pieces("d", 1, 1), client="other", deadline=None)
    assert names(queue.take_batch(now=0).items) == "a0 c0 d0 b0 d1 a1 b1 a2"


def test_an_item_that_does_not_fit_keeps_its_turn() -> None:
    queue = queue_with(max_batch_tokens=10)
    queue.add(pieces("small", 4, 4, 4, 4), client="x", deadline=None)
    queue.add(pieces("large", 9), client="y", deadline=None)
    assert [names(queue.take_batch(now=0).items) for _ in range(4)] == ["small0", "large0", "small1 small2", "small3"]


def test_an_item_over_the_budget_goes_alone() -> None:
    queue = queue_with(max_batch_tokens=10)
    queue.add(pieces("a", 25), client="x", deadline=None)
    queue.add(pieces("b", 1), client="y", deadline=None)
    batch = queue.take_batch(now=0)
    assert (names(batch.items), batch.tokens) == ("a0", 25)


def test_a_pass_takes_no_more_answers_than_its_budget() -> None:
    queue = WaitingQueue[Piece](
        QueueLimits(max_concurrent_requests=9, max_queue_tokens=9, max_batch_tokens=9, max_answer_characters=100)
    )
    costs = (60, 40, 101, 1, 0)
    queue.add(
        [Piece(f"a{number}", answer_characters=cost) for number, cost in enumerate(costs)], client="x", deadline=None
    )
    assert [names(queue.take_batch(now=0).items) for _ in range(3)] == ["a0 a1", "a2", "a3 a4"]


@pytest.mark.parametrize(
    ("costs", "idle", "expected"),
    [
        ((5, 6), 3, PassSize(threads=3, max_tokens=90)),  # too few for a pass on each thread
        ((5, 6), 2, PassSize(threads=1, max_tokens=6)),  # but another pass runs already
        ((5, 6, 9), 3, PassSize(threads=1, max_tokens=7)),
        ((5, 6, 9), 1, PassSize(threads=1, max_tokens=20)),
        ((50, 60, 90), 3, PassSize(threads=1, max_tokens=30)),
    ],
)
def test_threads_work_together_on_few_items_and_apart_on_many(
    costs: tuple[int, ...], idle: int, expected: PassSize
) -> None:
    queue = queue_with(max_batch_tokens=90)
    queue.add(pieces("a", *costs), client="x", deadline=None)
    assert queue.pass_size(threads=3, idle=idle) == expected


def test_a_pass_keeps_to_the_budget_that_it_is_given() -> None:
    queue = queue_with(max_batch_tokens=90)
    queue.add(pieces("a", 4, 4, 4), client="x", deadline=None)
    assert names(queue.take_batch(now=0, max_tokens=8).items) == "a0 a1"


def test_late_items_leave_wherever_they_stand() -> None:
    queue = queue_with(max_batch_tokens=1)
    queue.add(pieces("a", 1), client="x", deadline=None)
    queue.add(pieces("b", 1, 1), client="x", deadline=5.0)
    queue.add(pieces("c", 1), client="y", deadline=7.0)
    early = queue.take_batch(now=4.9)
    assert (names(early.items), names(early.late)) == ("a0", "")
    on_time = queue.take_batch(now=5.0)
    assert (names(on_time.items), names(on_time.late)) == ("c0", "b0 b1")
    assert queue.waiting_items == queue.waiting_tokens == 0


def test_a_later_deadline_is_kept_after_an_earlier_one_passed() -> None:
    queue = queue_with(max_batch_tokens=1)
    queue.add(pieces("a", 1, 1, 1), client="x", deadline=None)
    queue.add(pieces("b", 1), client="y", deadline=2.0)
    queue.add(pieces("c", 1), client="z", deadline=3.0)
    assert names(queue.take_batch(now=2.5).late) == "b0"
    assert names(queue.take_batch(now=3.5).late) == "c0"


def test_cancelling_takes_out_what_waits_and_nothing_else() -> None:
    queue = queue_with(max_batch_tokens=6)
    cancelled = queue.add(pieces("a", 3, 4, 5), client="x", deadline=None)
    queue.add(pieces("b", 3, 2), client="x", deadline=None)
    assert names(queue.take_batch(now=0).items) == "a0 b0"
    assert names(queue.cancel(cancelled)) == "a1 a2"
    assert (queue.waiting_items, queue.waiting_tokens) == (1, 2)
    assert queue.cancel(cancelled) == []
    assert names(queue.take_batch(now=0).items) == "b1"
    assert queue.take_batch(now=0).items == []


def test_clear_takes_everything_out() -> None:
    queue = queue_with()
    ticket = queue.add(pieces("a", 1, 2), client="x", deadline=None)
    queue.add(pieces("b", 3), client="y", deadline=None)
    assert names(queue.clear()) == "a0 a1 b0"
    assert queue.waiting_items == queue.waiting_tokens == 0
    assert queue.cancel(ticket) == []


requests = st.tuples(
    st.sampled_from("wxyz"),
    st.lists(st.integers(1, 14), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(0, 9)),
)
steps = st.lists(
    st.one_of(requests, st.integers(0, 30).map(lambda index: ("cancel", index)), st.just("take")), max_size=40
)


@settings(deadline=None)
@given(steps=steps)
def test_every_item_leaves_exactly_once_and_no_budget_is_exceeded(steps: list[object]) -> None:
    queue = queue_with(max_batch_tokens=11)
    tickets: list[Ticket[Piece]] = []
    added: list[Piece] = []
    left: list[Piece] = []

    def take(now: float) -> bool:
        batch = queue.take_batch(now=now)
        assert batch.tokens == sum(item.compute_tokens for item in batch.items)
        assert batch.tokens <= 11 or len(batch.items) == 1
        left.extend(batch.items + batch.late)
        return bool(batch.items)

    for now, step in enumerate([*steps, *["take"] * 200]):
        if step == "take":
            if not take(now) and now >= len(steps):
                break
        elif isinstance(step, tuple) and step[0] == "cancel":
            left.extend(queue.cancel(tickets[step[1]]) if step[1] < len(tickets) else [])
        elif isinstance(step, tuple):
            client, costs, wait = step
            items = pieces(f"{len(tickets)}-", *costs)
            tickets.append(queue.add(items, client=client, deadline=None if wait is None else now + wait))
            added.extend(items)
        waiting = [item for item in added if item not in left]
        assert queue.waiting_items == len(waiting)
        assert queue.waiting_tokens == sum(item.compute_tokens for item in waiting)
    assert sorted(left, key=id) == sorted(added, key=id)
    for request in range(len(tickets)):
        own = [item.name for item in left if item.name.startswith(f"{request}-")]
        assert own == sorted(own)  # at most 6 items, so names sort like positions


@settings(deadline=None)
@given(loads=st.lists(st.tuples(st.sampled_from("vwxyz"), st.integers(1, 9)), min_size=1, max_size=12))
def test_no_client_has_two_turns_while_another_waits_for_one(loads: list[tuple[str, int]]) -> None:
    queue = queue_with(max_batch_tokens=3)
    for client, count in loads:
        queue.add(pieces(client, *[1] * count), client=client, deadline=None)
    turns = [item.name[0] for _ in range(40) for item in queue.take_batch(now=0).items]
    for client in {client for client, _ in loads}:
        own = [-1, *(position for position, turn in enumerate(turns) if turn == client)]
        for before, after in itertools.pairwise(own):
            between = turns[before + 1 : after]
            assert len(between) == len(set(between))


def test_what_goes_before_a_request_depends_on_whose_turn_it_is() -> None:
    queue = queue_with(max_batch_tokens=9)
    assert queue.tokens_before_answer(client="w", items=1) == 0
    queue.add(pieces("x", 5), client="x", deadline=None)
    queue.take_batch(now=0)
    assert queue.tokens_before_answer(client="w", items=3) == 5
    queue.add(pieces("x", *[2] * 10), client="x", deadline=None)
    queue.add(pieces("y", *[2] * 30), client="y", deadline=None)
    # 5 run; so many of the waiting 40, of 2 tokens each; and up to a pass of what comes later.
    assert queue.tokens_before_answer(client="w", items=1) == 5 + 3 * 2 + 6
    assert queue.tokens_before_answer(client="w", items=4) == 5 + 12 * 2 + 9
    assert queue.tokens_before_answer(client="x", items=1) == 5 + 4 * 2 + 8
    assert queue.tokens_before_answer(client="x", items=100) == 5 + 40 * 2 + 9


def test_retry_after_is_the_time_that_the_queue_needs() -> None:
    rate = DrainRate()
    rate.observe(tokens=1000, seconds=0.5, is_full=True)
    assert rate.retry_after_seconds(tokens=20_000, jitter=0.0) == 10
    assert rate.retry_after_seconds(tokens=20_001, jitter=0.0) == 11
    rate.observe(tokens=100, seconds=1.55, is_full=True)  # 0.9 * 1000 + 100 tokens in 0.9 * 0.5 + 1.55 s
    assert rate.retry_after_seconds(tokens=20_000, jitter=0.0) == 40
    rate.observe(tokens=100, seconds=0.2, is_full=True)
    assert rate.retry_after_seconds(tokens=10_000, jitter=0.0) == 20


@pytest.mark.parametrize(
    ("tokens", "least", "most"), [(0, 1, 2), (900, 1, 2), (4_000, 4, 6), (7_000, 7, 10), (10**9, 40, 60)]
)
def test_retry_after_is_jittered_within_1_and_60_seconds(tokens: int, least: int, most: int) -> None:
    rate = DrainRate()
    rate.observe(tokens=1000, seconds=1.0, is_full=True)
    assert rate.retry_after_seconds(tokens=tokens, jitter=0.0) == least
    assert rate.retry_after_seconds(tokens=tokens, jitter=math.nextafter(1.0, 0.0)) == most


def test_a_pass_that_is_not_full_counts_only_if_it_is_quicker() -> None:
    rate = DrainRate()
    rate.observe(tokens=10, seconds=5.0, is_full=False)
    assert rate.seconds(tokens=1000) == 0
    rate.observe(tokens=1000, seconds=10.0, is_full=True)
    rate.observe(tokens=10, seconds=5.0, is_full=False)
    assert rate.seconds(tokens=1000) == pytest.approx(10.0)
    for _ in range(50):
        rate.observe(tokens=10, seconds=0.01, is_full=False)
    assert rate.seconds(tokens=1000) == pytest.approx(1.4, abs=0.5)


def test_retry_after_before_any_pass() -> None:
    assert DrainRate().retry_after_seconds(tokens=10**6, jitter=0.0) == 1
