"""The batcher with a fake engine: whose answer is whose, what shares a pass, and every way to end."""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from service.batching.batcher import Batcher, BatcherState
from service.batching.encoding import CHUNK_CHARACTERS
from service.batching.policy import QueueLimits
from service.batching.submission import Entry, Rounds, Skipped
from service.errors import (
    BackendFailure,
    DeadlinePassed,
    EmptyInput,
    Overloaded,
    PayloadTooLarge,
    ServiceError,
    Unhealthy,
)
from service.observability.metrics import Metrics
from service.tasks import (
    Answer,
    Decode,
    DecodeResult,
    Embed,
    EmbedResult,
    FillMask,
    FloatVector,
    NextSentence,
    Result,
    Task,
    Timing,
)
from tests.service.batching.fake_engine import (
    FakeClock,
    FakeEngine,
    embed,
    number_in,
    number_of,
    running_batcher,
)
from tests.service.fake_engine import PATIENCE_SECONDS, FakeEncoded


def numbers_in(entries: Sequence[Entry]) -> list[int | type[ServiceError]]:
    """The number in each answer, or the kind of error."""
    return [number_in(entry.result) if isinstance(entry, Answer) else type(entry) for entry in entries]


def series(metrics: Metrics, name: str) -> float:
    lines = metrics.render()[0].decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


async def submitted(batcher: Batcher[FakeEncoded], *tasks: Task, client: str = "x") -> asyncio.Task[list[Entry]]:
    """A request that has got as far as it gets without a pass."""
    request = asyncio.create_task(batcher.submit(tasks, client=client, deadline=None))
    await asyncio.sleep(0)
    return request


async def submitted_together(batcher: Batcher[FakeEncoded], *tasks: Task) -> list[asyncio.Task[list[Entry]]]:
    """One request for each task, all in the queue before the next pass begins."""
    requests = [asyncio.create_task(batcher.submit([task], client="x", deadline=None)) for task in tasks]
    await asyncio.sleep(0)
    return requests


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


def fill_mask(number: int) -> Task:
    return FillMask(text=f"{number} [MASK]")


def next_sentence(number: int) -> Task:
    return NextSentence(text=f"{number}", text_pair="b")


def test_answers_go_to_those_who_asked() -> None:
    draw = random.Random(7)

    def request(start: int) -> list[Task]:
        kinds: list[Callable[[int], Task]] = [embed, fill_mask, next_sentence]
        return [draw.choice(kinds)(number) for number in range(start, start + draw.randint(1, 5))]

    async def main() -> None:
        engine = FakeEngine()
        requests = [request(start) for start in range(0, 3000, 10)]
        async with running_batcher(engine, max_concurrent_requests=2000, max_batch_tokens=37) as batcher:

            async def ask(tasks: list[Task]) -> list[Entry]:
                for _ in range(draw.randint(0, 9)):
                    await asyncio.sleep(0)
                return await batcher.submit(tasks, client=draw.choice("vwxyz"), deadline=None)

            answers = await asyncio.gather(*map(ask, requests))
        for tasks, entries in zip(requests, answers, strict=True):
            assert numbers_in(entries) == [number_of(task) for task in tasks]
            assert all(isinstance(entry, Answer) for entry in entries)
        assert max(map(len, engine.batches)) > 5

    asyncio.run(main())


def test_what_waited_during_a_pass_shares_the_next() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine) as batcher:
            engine.hold()
            first = await submitted(batcher, embed(1))
            await engine.has_entered()
            rest = [
                await submitted(batcher, fill_mask(2), client="x"),
                await submitted(batcher, next_sentence(3), client="y"),
                await submitted(batcher, embed(4), client="z"),
            ]
            engine.release()
            assert [numbers_in(await request) for request in [first, *rest]] == [[1], [2], [3], [4]]
        assert engine.batches == [[1], [2, 3, 4]]

    asyncio.run(main())


def test_a_bulk_request_does_not_hold_up_a_single_one() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine, max_batch_tokens=6) as batcher:
            engine.hold()
            bulk = await submitted(batcher, *(embed(number) for number in range(20)), client="bulk")
            await engine.has_entered()
            single = await submitted(batcher, embed(99), client="single")
            engine.release()
            assert numbers_in(await single) == [99]
            assert numbers_in(await bulk) == list(range(20))
        assert engine.batches[:3] == [[0, 1], [2, 99], [3, 4]]

    asyncio.run(main())


def test_timing_is_split_by_room() -> None:
    clock = FakeClock()

    class SlowEngine(FakeEngine):
        def encode(self, task: Task) -> FakeEncoded:
            clock.now += 0.25
            return super().encode(task)

    async def main() -> list[Entry]:
        engine = SlowEngine()

        def take_3_seconds_for(number: int) -> None:
            if engine.batches[-1] == [number]:
                clock.now += 3.0

        async with running_batcher(engine, clock=clock) as batcher:
            engine.hold()
            first = await submitted(batcher, embed(1))
            await engine.has_entered()
            second = await submitted(batcher, embed(2, tokens=13))
            clock.now += 8.0
            engine.on_run = lambda: take_3_seconds_for(2)
            engine.release()
            await first
            return await second

    (answer,) = asyncio.run(main())
    assert isinstance(answer, Answer)
    assert answer.timing == Timing(tokenization=0.25, queue=8.0, inference=3.0)
    assert answer.compute_tokens == 13


def test_an_item_that_cannot_be_encoded_is_its_own_fault() -> None:
    async def main() -> None:
        metrics = Metrics()
        async with running_batcher(FakeEngine(), metrics=metrics) as batcher:
            entries = await batcher.submit([embed(1), Embed(text=""), embed(3)], client="x", deadline=None)
            assert numbers_in(entries) == [1, EmptyInput, 3]
            assert numbers_in(await batcher.submit([Embed(text="")], client="x", deadline=None)) == [EmptyInput]
            assert await batcher.submit([], client="x", deadline=None) == []
        assert series(metrics, "te_embed_count") == 4
        assert series(metrics, "te_embed_success") == 2
        assert series(metrics, "te_request_input_length_sum") == 6

    asyncio.run(main())


def test_long_texts_are_encoded_off_the_event_loop_in_order() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine) as batcher:
            await batcher.submit([embed(1), embed(2)], client="x", deadline=None)
            assert engine.encoded_in == ["MainThread"] * 2
            long = [Embed(text=f"{number}" + " " * (CHUNK_CHARACTERS // 2)) for number in range(7)]
            entries = await batcher.submit(long, client="x", deadline=None)
            assert numbers_in(entries) == list(range(7))
            assert all(name.startswith("encode") for name in engine.encoded_in[2:])

    asyncio.run(main())


def test_a_failed_item_leaves_its_neighbours_alone() -> None:
    async def main() -> None:
        engine = FakeEngine()
        engine.failing = {2}
        metrics = Metrics()
        async with running_batcher(engine, metrics=metrics) as batcher:
            entries = await batcher.submit([embed(1), embed(2), embed(3)], client="x", deadline=None)
            assert numbers_in(entries) == [1, BackendFailure, 3]
        assert series(metrics, "bert_items_failed_total") == 1

    asyncio.run(main())


def raise_once(error: Exception) -> Callable[[], None]:
    errors = [error]

    def on_run() -> None:
        if errors:
            raise errors.pop()

    return on_run


def test_a_failed_pass_fails_its_items_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        engine = FakeEngine(on_run=raise_once(RuntimeError("boom")))
        async with running_batcher(engine) as batcher:
            first = await submitted_together(batcher, *map(embed, range(8)))
            assert [numbers_in(await request) for request in first] == [[BackendFailure]] * 8
            assert engine.batches == [list(range(8))]
            second = await submitted_together(batcher, *map(embed, range(8)))
            assert [numbers_in(await request) for request in second] == [[number] for number in range(8)]
            assert batcher.healthy

    asyncio.run(main())
    assert "a pass over 8 items failed" in caplog.text


def test_nothing_of_a_pass_is_kept_once_it_is_answered() -> None:
    class Remembering(FakeEngine):
        def run(self, batch: Sequence[FakeEncoded], *, threads: int) -> Sequence[Result | ServiceError]:
            results = super().run(batch, threads=threads)
            vectors.extend(weakref.ref(result.vector) for result in results if isinstance(result, EmbedResult))
            return results

    vectors: list[weakref.ref[FloatVector]] = []

    async def main() -> None:
        async with running_batcher(Remembering()) as batcher:
            assert numbers_in(await batcher.submit([embed(1), embed(2)], client="x", deadline=None)) == [1, 2]
            assert len(vectors) == 2
            await wait_until(lambda: all(vector() is None for vector in vectors))

    asyncio.run(main())


def test_a_wrong_number_of_results_fails_the_whole_pass(caplog: pytest.LogCaptureFixture) -> None:
    class ShortEngine(FakeEngine):
        def run(self, batch: Sequence[FakeEncoded], *, threads: int) -> Sequence[Result | ServiceError]:
            results = super().run(batch, threads=threads)
            return results[:-1] if len(batch) > 1 else results

    async def main() -> None:
        async with running_batcher(ShortEngine()) as batcher:
            entries = await batcher.submit([embed(1), embed(2)], client="x", deadline=None)
            assert numbers_in(entries) == [BackendFailure] * 2
            assert numbers_in(await batcher.submit([embed(3)], client="x", deadline=None)) == [3]

    asyncio.run(main())
    assert "the engine gave 1 results for 2 items" in caplog.text


def test_every_thread_has_a_pass_of_its_own_while_enough_waits() -> None:
    async def main() -> None:
        engine = FakeEngine(threads=2)
        async with running_batcher(engine, max_batch_tokens=18) as batcher:
            engine.hold()
            requests = await submitted_together(batcher, *map(embed, range(8)))
            await wait_until(lambda: len(engine.batches) == 2)
            assert sorted(engine.batches) == [[0, 1, 2], [3, 4, 5]]  # 3 tokens each, and half of the budget a pass
            engine.release()
            assert [numbers_in(await request) for request in requests] == [[number] for number in range(8)]
            threads, sizes = zip(*engine.passes[:2], strict=True)
            assert (len(set(threads)), set(sizes)) == (2, {1})

    asyncio.run(main())


def test_a_lone_item_has_all_threads_and_what_comes_meanwhile_waits() -> None:
    async def main() -> None:
        engine = FakeEngine(threads=3)
        async with running_batcher(engine) as batcher:
            engine.hold()
            first = await submitted(batcher, embed(0))
            await engine.has_entered()
            later = [await submitted(batcher, embed(number)) for number in (1, 2)]
            await asyncio.sleep(0.01)
            assert engine.batches == [[0]]
            engine.release()
            assert [numbers_in(await request) for request in (first, *later)] == [[0], [1], [2]]
            # The two that waited are too few for three threads as well. Always the same thread has a team.
            assert engine.batches == [[0], [1, 2]]
            assert [threads for _, threads in engine.passes] == [3, 3]
            assert len({name for name, _ in engine.passes}) == 1

    asyncio.run(main())


def test_what_waits_is_taken_by_the_first_thread_that_is_free() -> None:
    async def main() -> None:
        engine = FakeEngine(threads=2)
        async with running_batcher(engine, max_batch_tokens=6) as batcher:
            engine.hold()
            bulk = await submitted_together(batcher, embed(0), embed(1))
            await wait_until(lambda: len(engine.batches) == 2)
            waiting = await submitted(batcher, embed(2))
            engine.release()
            assert [numbers_in(await request) for request in (*bulk, waiting)] == [[0], [1], [2]]
            assert engine.batches[2:] == [[2]]

    asyncio.run(main())


@pytest.mark.parametrize("threads", [1, 2])
def test_a_thread_goes_on_with_what_waits_while_the_event_loop_is_busy(threads: int) -> None:
    async def main() -> None:
        engine = FakeEngine(threads=threads)
        metrics = Metrics()
        async with running_batcher(engine, max_batch_tokens=6 * threads, metrics=metrics) as batcher:
            engine.hold()
            bulk = await submitted_together(batcher, *map(embed, range(2 * threads)))
            await wait_until(lambda: len(engine.batches) == threads)
            waiting = [await submitted(batcher, embed(number)) for number in range(100, 104)]
            engine.release()
            end = time.monotonic() + PATIENCE_SECONDS
            while len(engine.batches) < threads + 2 and time.monotonic() < end:
                time.sleep(0.001)
            assert sorted(engine.batches[threads:]) == [[100, 101], [102, 103]]
            assert sorted([numbers_in(await request) for request in (*bulk, *waiting)]) == sorted(
                [number] for batch in engine.batches for number in batch
            )
        assert series(metrics, "te_queue_size") == series(metrics, "bert_queue_tokens") == 0

    asyncio.run(main())


def test_a_pass_that_is_taken_up_as_the_batcher_ends_is_not_told_of() -> None:
    """Late items that a thread dropped have been answered by then, which would be a fault twice."""

    async def main() -> None:
        faults: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        engine = FakeEngine()
        clock = FakeClock()
        async with running_batcher(engine, max_batch_tokens=3, clock=clock) as batcher:
            engine.hold()
            first = await submitted(batcher, embed(0))
            await engine.has_entered()
            late = asyncio.create_task(batcher.submit([embed(1)], client="x", deadline=clock.now + 1))
            patient = await submitted(batcher, embed(2))
            clock.now += 2
            engine.release()
            end = time.monotonic() + PATIENCE_SECONDS
            while len(engine.batches) < 2 and time.monotonic() < end:
                time.sleep(0.001)  # the event loop learns of nothing
            await batcher.drain(timeout_seconds=0.0)
            for request in (first, late, patient):
                assert len(await request) == 1
            await asyncio.sleep(0.01)
        assert engine.batches == [[0], [2]]
        assert faults == []

    asyncio.run(main())


def test_what_follows_a_pass_is_watched_too() -> None:
    async def main() -> None:
        deaths: list[BaseException] = []
        engine = FakeEngine()
        engine.on_run = engine.hold  # from the end of the first pass on
        async with running_batcher(
            engine, max_batch_tokens=3, pass_timeout_seconds=0.05, on_failure=deaths.append
        ) as batcher:
            requests = await submitted_together(batcher, *map(embed, range(3)))
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert [numbers_in(await request) for request in requests] == [[0], [Unhealthy], [Unhealthy]]
            assert [str(death) for death in deaths] == ["a pass did not end within 0.05 s"]

    asyncio.run(main())


def test_late_items_are_answered_by_a_thread_that_goes_on() -> None:
    async def main() -> None:
        engine = FakeEngine()
        clock = FakeClock()
        metrics = Metrics()
        async with running_batcher(engine, max_batch_tokens=3, clock=clock, metrics=metrics) as batcher:
            engine.hold()
            first = await submitted(batcher, embed(0))
            await engine.has_entered()
            late = asyncio.create_task(batcher.submit([embed(1)], client="x", deadline=clock.now + 1))
            await asyncio.sleep(0)
            clock.now += 2
            engine.release()
            assert [numbers_in(await request) for request in (first, late)] == [[0], [DeadlinePassed]]
        assert engine.batches == [[0]]
        assert series(metrics, 'bert_items_dropped_total{reason="deadline"}') == 1

    asyncio.run(main())


@pytest.mark.parametrize(("threads", "tokens_a_second"), [(1, 3), (2, 6)])
def test_retry_after_counts_every_thread(threads: int, tokens_a_second: int) -> None:
    """A pass of 3 tokens takes a second; one of them runs on each thread."""

    async def main() -> None:
        clock = FakeClock()
        engine = FakeEngine(threads=threads)

        def pass_a_second() -> None:
            clock.now = max(clock.now, 1001.0)

        engine.on_run = pass_a_second
        async with running_batcher(engine, clock=clock, max_batch_tokens=3 * threads, max_queue_tokens=60) as batcher:
            engine.hold()
            first = await submitted_together(batcher, *map(embed, range(threads)))
            await wait_until(lambda: len(engine.batches) == threads)
            engine.release()
            await asyncio.wait(first)
            engine.hold()
            running = await submitted_together(batcher, *map(embed, range(threads)))
            await wait_until(lambda: len(engine.batches) == 2 * threads)
            waiting = await submitted(batcher, *(embed(number) for number in range(20)))
            with pytest.raises(Overloaded) as refused:
                await batcher.submit([embed(0)], client="x", deadline=None)
            least = math.ceil((60 + 3 * threads) / tokens_a_second)
            assert least <= refused.value.retry_after_seconds <= least + least // 2
            engine.release()
            await asyncio.wait([*running, waiting])

    asyncio.run(main())


def test_what_could_not_be_answered_before_its_deadline_is_refused_at_once() -> None:
    """A full pass of 12 tokens takes 2 s."""

    async def main() -> None:
        clock = FakeClock()
        engine = FakeEngine()

        def pass_2_seconds() -> None:
            clock.now += 2.0

        engine.on_run = pass_2_seconds
        metrics = Metrics()
        async with running_batcher(engine, clock=clock, max_batch_tokens=12, metrics=metrics) as batcher:

            def ask(client: str, *, seconds: float, items: int = 1) -> None:
                batcher.check_admission(client=client, deadline=clock.now + seconds, items=items)

            await batcher.submit([embed(0)], client="x", deadline=None)
            engine.hold()
            running = await submitted(batcher, *map(embed, range(4)), client="bulk")
            await engine.has_entered()
            waiting = await submitted(batcher, *map(embed, range(8)), client="bulk")
            # Nothing is known yet but of a pass that was nearly empty.
            ask("x", seconds=0.5)
            engine.release()
            await asyncio.wait([running, waiting])
            engine.hold()
            running = await submitted(batcher, *map(embed, range(4)), client="bulk")
            await engine.has_entered()
            waiting = await submitted(batcher, *map(embed, range(8)), client="bulk")
            # 12 tokens run. An item of each other has its turn first, and as much may come later into the same pass.
            for client, items, seconds in (("x", 1, 4), ("bulk", 1, 4), ("bulk", 2, 6), ("x", 9, 8)):
                with pytest.raises(Overloaded, match="deadline"):
                    ask(client, items=items, seconds=seconds / 0.65 - 0.01)
                ask(client, items=items, seconds=seconds / 0.65 + 0.01)
            with pytest.raises(Overloaded):
                await batcher.submit([embed(9)], client="x", deadline=clock.now - 1.0)
            assert series(metrics, 'bert_requests_refused_total{reason="overloaded"}') == 5
            engine.release()
            await asyncio.wait([running, waiting])
            ask("x", seconds=-1.0)  # that it is late is found when it is taken

    asyncio.run(main())


def test_those_who_went_away_get_no_pass() -> None:
    async def main() -> None:
        engine = FakeEngine()
        metrics = Metrics()
        async with running_batcher(engine, metrics=metrics, max_concurrent_requests=51, max_batch_tokens=3) as batcher:
            engine.hold()
            running = await submitted(batcher, embed(0))
            await engine.has_entered()
            gone = [await submitted(batcher, embed(number)) for number in range(1, 51)]
            assert series(metrics, "te_queue_size") == 50
            for request in gone:
                request.cancel()
            await asyncio.wait(gone)
            assert series(metrics, "te_queue_size") == series(metrics, "bert_queue_tokens") == 0
            last = await submitted(batcher, embed(99))
            engine.release()
            assert numbers_in(await last) == [99]
            assert numbers_in(await running) == [0]
        assert engine.batches == [[0], [99]]
        assert series(metrics, 'bert_items_dropped_total{reason="cancelled"}') == 50
        assert series(metrics, 'te_request_failure{err="dropped"}') == 50

    asyncio.run(main())


def test_going_away_during_a_pass_changes_nothing_for_the_others() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine, max_concurrent_requests=2) as batcher:
            engine.hold()
            gone, stays = await submitted_together(batcher, embed(1), embed(2))
            await engine.has_entered()
            gone.cancel()
            await asyncio.wait([gone])
            engine.release()
            assert numbers_in(await stays) == [2]
            assert numbers_in(await batcher.submit([embed(3), embed(4)], client="x", deadline=None)) == [3, 4]
        assert engine.batches == [[1, 2], [3, 4]]

    asyncio.run(main())


def test_late_items_are_answered_without_a_pass() -> None:
    async def main() -> None:
        engine = FakeEngine()
        clock = FakeClock()
        metrics = Metrics()
        async with running_batcher(engine, clock=clock, metrics=metrics) as batcher:
            engine.hold()
            running = await submitted(batcher, embed(1))
            await engine.has_entered()
            late = asyncio.create_task(batcher.submit([embed(2), embed(3)], client="x", deadline=clock.now + 2.0))
            patient = asyncio.create_task(batcher.submit([embed(4)], client="x", deadline=clock.now + 2.1))
            await asyncio.sleep(0)
            clock.now += 2.0
            engine.release()
            assert numbers_in(await late) == [DeadlinePassed] * 2
            assert numbers_in(await patient) == [4]
            assert numbers_in(await running) == [1]
        assert engine.batches == [[1], [4]]
        assert series(metrics, 'bert_items_dropped_total{reason="deadline"}') == 2

    asyncio.run(main())


def test_late_items_are_answered_while_a_pass_runs() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine, clock=time.monotonic) as batcher:
            engine.hold()
            running = await submitted(batcher, embed(1))
            await engine.has_entered()
            now = time.monotonic()
            waiting = [
                asyncio.create_task(batcher.submit([embed(number)], client="x", deadline=now + seconds))
                for number, seconds in ((2, PATIENCE_SECONDS), (3, 0.04), (4, 0.02), (5, 0.06))
            ]
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                for number in (2, 1, 3):  # the earliest deadline first
                    assert numbers_in(await waiting[number]) == [DeadlinePassed]
            assert not running.done()
            engine.release()
            assert numbers_in(await waiting[0]) == [2]
        assert engine.batches == [[1], [2]]

    asyncio.run(main())


def test_a_refused_task_keeps_an_all_or_nothing_request_out_of_the_queue() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine) as batcher:
            tasks = [embed(1), Embed(text=""), embed(3)]
            entries = await batcher.submit(tasks, client="x", deadline=None, all_or_nothing=True)
            assert numbers_in(entries) == [Skipped, EmptyInput, Skipped]
            entries = await batcher.submit(tasks[::2], client="x", deadline=None, all_or_nothing=True)
            assert numbers_in(entries) == [1, 3]
        assert engine.batches == [[1, 3]]

    asyncio.run(main())


def test_a_deadline_that_passes_during_tokenization_is_counted() -> None:
    async def main() -> None:
        metrics, clock = Metrics(), FakeClock()
        async with running_batcher(FakeEngine(), metrics=metrics, clock=clock) as batcher:
            tasks = [embed(number, tokens=CHUNK_CHARACTERS) for number in (1, 2)]
            assert numbers_in(await batcher.submit(tasks, client="x", deadline=clock.now)) == [DeadlinePassed] * 2
        assert series(metrics, 'bert_items_dropped_total{reason="deadline"}') == 2

    asyncio.run(main())


def test_answers_longer_than_could_be_sent_are_refused() -> None:
    class WordyEngine(FakeEngine):
        def encode(self, task: Task) -> FakeEncoded:
            return replace(super().encode(task), answer_characters=1_000_000 * number_of(task))

    async def main() -> None:
        engine, metrics = WordyEngine(), Metrics()
        async with running_batcher(engine, metrics=metrics) as batcher:
            assert numbers_in(await batcher.submit([embed(9), embed(7)], client="x", deadline=None)) == [9, 7]
            with pytest.raises(PayloadTooLarge, match="^inputs: the answer would be about 17000000 characters long"):
                await batcher.submit([embed(9), embed(8)], client="x", deadline=None)
        assert engine.batches == [[9, 7]]
        assert series(metrics, 'bert_requests_refused_total{reason="payload_too_large"}') == 1

    asyncio.run(main())


def test_one_text_and_a_list_of_one_are_refused_alike() -> None:
    async def main() -> None:
        engine = FakeEngine()
        metrics = Metrics()
        async with running_batcher(engine, metrics=metrics, max_concurrent_requests=2) as batcher:
            engine.hold()
            held = await submitted_together(batcher, embed(1), embed(2))
            await engine.has_entered()
            tokenized = len(engine.encoded_in)
            for tasks in ([embed(3)], [embed(3), embed(4)]):
                with pytest.raises(Overloaded) as refusal:
                    await batcher.submit(tasks, client="y", deadline=None)
                assert refusal.value.retry_after_seconds in (1, 2)
            with pytest.raises(Overloaded):
                batcher.check_admission(client="y", deadline=None)
            with pytest.raises(PayloadTooLarge, match="at most 2 items"):
                await batcher.submit([embed(number) for number in range(1000)], client="y", deadline=None)
            assert len(engine.encoded_in) == tokenized
            engine.release()
            assert [numbers_in(await request) for request in held] == [[1], [2]]
            batcher.check_admission(client="y", deadline=None)
            assert numbers_in(await batcher.submit([embed(5), embed(6)], client="y", deadline=None)) == [5, 6]
        assert series(metrics, 'bert_requests_refused_total{reason="overloaded"}') == 3
        assert series(metrics, 'bert_requests_refused_total{reason="payload_too_large"}') == 1

    asyncio.run(main())


def test_tokens_are_admitted_all_or_nothing() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine, max_queue_tokens=20, max_batch_tokens=20) as batcher:
            engine.hold()
            running = await submitted(batcher, embed(1, tokens=20))
            await engine.has_entered()
            waiting = await submitted(batcher, embed(2, tokens=12))
            with pytest.raises(Overloaded):
                await batcher.submit([embed(3, tokens=4), embed(4, tokens=5)], client="y", deadline=None)
            with pytest.raises(PayloadTooLarge, match=r"^inputs: 1 items of at least 21 tokens .* 20 tokens$"):
                await batcher.submit([embed(5, tokens=21)], client="y", deadline=None)
            fits = await submitted(batcher, embed(6, tokens=4), embed(7, tokens=4))
            engine.release()
            assert [numbers_in(await request) for request in (running, waiting, fits)] == [[1], [2], [6, 7]]
        assert engine.batches == [[1], [2, 6, 7]]

    asyncio.run(main())


def test_drain_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine, max_batch_tokens=3) as batcher:
            engine.hold()
            accepted = [await submitted(batcher, embed(number)) for number in range(20)]
            await engine.has_entered()
            draining = asyncio.create_task(batcher.drain(timeout_seconds=PATIENCE_SECONDS))
            await asyncio.sleep(0)
            assert not batcher.healthy
            with pytest.raises(Unhealthy, match="shutting down"):
                await batcher.submit([embed(99)], client="x", deadline=None)
            engine.release()
            assert [numbers_in(await request) for request in accepted] == [[number] for number in range(20)]
            await draining
            assert batcher.state is BatcherState.STOPPED
            assert "model" not in [thread.name for thread in threading.enumerate()]
            with pytest.raises(Unhealthy, match="has shut down"):
                batcher.check_admission(client="x", deadline=None)

    asyncio.run(main())


def test_what_is_left_when_the_drain_times_out_is_answered() -> None:
    async def main() -> None:
        engine = FakeEngine()
        metrics = Metrics()
        async with running_batcher(engine, max_batch_tokens=3, metrics=metrics) as batcher:
            engine.hold()
            left = [await submitted(batcher, embed(1), embed(2)), await submitted(batcher, embed(3))]
            await engine.has_entered()
            await batcher.drain(timeout_seconds=0.02)
            assert [numbers_in(await request) for request in left] == [[Unhealthy] * 2, [Unhealthy]]
        assert engine.batches == [[1]]
        assert series(metrics, "te_queue_size") == 0
        assert series(metrics, 'bert_items_dropped_total{reason="unhealthy"}') == 2

    asyncio.run(main())


class SlowTokenizer(FakeEngine):
    """Waits with each encoding."""

    def __init__(self) -> None:
        super().__init__()
        self.encoding = threading.Event()
        self.go_on = threading.Event()

    def encode(self, task: Task) -> FakeEncoded:
        self.encoding.set()
        assert self.go_on.wait(PATIENCE_SECONDS)
        return super().encode(task)


def join_encoding_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("encode"):
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()


@pytest.mark.parametrize("in_time", [True, False])
def test_drain_waits_for_those_still_being_tokenized(in_time: bool) -> None:
    async def main() -> None:
        engine = SlowTokenizer()
        async with running_batcher(engine) as batcher:
            request = await submitted(batcher, Embed(text="5" + " " * CHUNK_CHARACTERS), Embed(text=""))
            assert await asyncio.to_thread(engine.encoding.wait, PATIENCE_SECONDS)
            draining = asyncio.create_task(batcher.drain(timeout_seconds=PATIENCE_SECONDS if in_time else 0.0))
            await asyncio.wait([draining], timeout=0.02 if in_time else PATIENCE_SECONDS)
            assert draining.done() is not in_time
            engine.go_on.set()
            if in_time:
                assert numbers_in(await request) == [5, EmptyInput]
            else:
                with pytest.raises(Unhealthy):
                    await request
            await draining
            await asyncio.to_thread(join_encoding_threads)

    asyncio.run(main())


def test_a_request_that_goes_away_is_tokenized_no_further() -> None:
    async def main() -> None:
        engine = SlowTokenizer()
        async with running_batcher(engine) as batcher:
            request = await submitted(batcher, *[Embed(text="5" + " " * CHUNK_CHARACTERS)] * 3)
            assert await asyncio.to_thread(engine.encoding.wait, PATIENCE_SECONDS)
            request.cancel()
            await asyncio.wait([request])
            engine.go_on.set()
        await asyncio.to_thread(join_encoding_threads)
        assert len(engine.encoded_in) == 1
        assert engine.batches == []

    asyncio.run(main())


def test_before_the_start_nothing_is_accepted_and_a_drain_is_harmless() -> None:
    async def main() -> None:
        limits = QueueLimits(max_concurrent_requests=1, max_queue_tokens=1, max_batch_tokens=1)
        batcher = Batcher(FakeEngine(), limits=limits, metrics=Metrics(), pass_timeout_seconds=PATIENCE_SECONDS)
        assert not batcher.healthy
        with pytest.raises(Unhealthy, match="starting"):
            await batcher.submit([embed(1)], client="x", deadline=None)
        await batcher.drain(timeout_seconds=0.0)
        assert batcher.state is BatcherState.STOPPED

    asyncio.run(main())


class BrokenMetrics(Metrics):
    """A mistake of our own in the loop task."""

    def batch_finished(self, *, compute_seconds: float) -> None:
        raise LookupError(compute_seconds)


def fail(error: BaseException) -> Callable[[], None]:
    def on_run() -> None:
        raise error

    return on_run


@pytest.mark.parametrize(
    ("on_run", "metrics", "cause"),
    [
        (fail(SystemExit()), Metrics, SystemExit),
        (fail(Unhealthy("the device is lost")), Metrics, Unhealthy),
        (lambda: None, BrokenMetrics, LookupError),
    ],
    ids=["thread death", "device lost", "loop death"],
)
def test_a_death_answers_all_and_is_told(
    on_run: Callable[[], None], metrics: type[Metrics], cause: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        deaths: list[BaseException] = []
        engine = FakeEngine(on_run=on_run)
        counted = metrics()
        async with running_batcher(engine, max_batch_tokens=3, metrics=counted, on_failure=deaths.append) as batcher:
            engine.hold()
            waiting = [await submitted(batcher, embed(number)) for number in range(9)]
            await engine.has_entered()
            engine.release()
            done, _ = await asyncio.wait(waiting, timeout=PATIENCE_SECONDS)
            assert len(done) == 9
            assert [numbers_in(request.result()) for request in waiting] == [[Unhealthy]] * 9
            assert batcher.state is BatcherState.FAILED
            assert list(map(type, deaths)) == [cause]
            with pytest.raises(Unhealthy, match="must be restarted"):
                await batcher.submit([embed(1)], client="x", deadline=None)
            await batcher.drain(timeout_seconds=PATIENCE_SECONDS)
            assert batcher.state is BatcherState.FAILED
            assert len(deaths) == 1
        assert series(counted, "te_queue_size") == 0

    asyncio.run(main())
    assert "must be restarted" in caplog.text


def test_a_pass_that_does_not_end_is_a_death_too() -> None:
    async def main() -> None:
        deaths: list[BaseException] = []
        engine = FakeEngine(threads=2)
        async with running_batcher(engine, pass_timeout_seconds=0.05, on_failure=deaths.append) as batcher:
            for number in range(3):  # what ends in time is no reason, however many there are
                assert numbers_in(await batcher.submit([embed(number)], client="x", deadline=None)) == [number]
                await asyncio.sleep(0.03)
            assert not deaths
            engine.hold()
            hanging = await submitted(batcher, embed(7))
            await engine.has_entered()
            waiting = await submitted(batcher, embed(8))
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert [numbers_in(await request) for request in (hanging, waiting)] == [[Unhealthy], [Unhealthy]]
            assert batcher.state is BatcherState.FAILED
            assert [str(death) for death in deaths] == ["a pass did not end within 0.05 s"]
            async with asyncio.timeout(PATIENCE_SECONDS / 2):  # the end is not held up by it
                await batcher.drain(timeout_seconds=PATIENCE_SECONDS)
            assert batcher.state is BatcherState.FAILED

    asyncio.run(main())


def test_a_cancelled_loop_task_is_a_death_too() -> None:
    async def main() -> None:
        deaths: list[BaseException] = []
        async with running_batcher(FakeEngine(), on_failure=deaths.append) as batcher:
            (loop_task,) = (task for task in asyncio.all_tasks() if task.get_name() == "batcher")
            loop_task.cancel()
            await asyncio.wait([loop_task])
            await asyncio.sleep(0)
            assert batcher.state is BatcherState.FAILED
            assert list(map(type, deaths)) == [asyncio.CancelledError]

    asyncio.run(main())


def in_rounds(*rounds: Sequence[Task]) -> Rounds:
    """A request that asks for these, one after the other, and comes to all entries together."""
    entries: list[Entry] = []
    for tasks in rounds:
        entries += yield tasks
    return entries


async def asked_in_rounds(batcher: Batcher[FakeEncoded], *rounds: Sequence[Task]) -> asyncio.Task[list[Entry]]:
    request = asyncio.create_task(batcher.submit_rounds(in_rounds(*rounds), client="x", deadline=None))
    await asyncio.sleep(0)
    return request


def test_rounds_are_asked_one_after_the_other() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine) as batcher:
            request = await asked_in_rounds(batcher, [embed(1), embed(2)], [embed(3)])
            assert numbers_in(await request) == [1, 2, 3]
        assert engine.batches == [[1, 2], [3]]

    asyncio.run(main())


def test_a_request_that_was_accepted_is_not_refused_for_a_full_queue_later() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine, max_queue_tokens=9, max_batch_tokens=4) as batcher:
            engine.hold()
            request = await asked_in_rounds(batcher, [embed(1)], [embed(2, tokens=6)])
            await engine.has_entered()
            waiting = [await submitted(batcher, embed(number, tokens=4)) for number in (7, 8)]
            with pytest.raises(Overloaded):
                await batcher.submit([embed(9)], client="x", deadline=None)
            engine.on_run = engine.hold
            engine.release()
            # While 7 is in its pass, 8 waits, and the second round with it: more than may wait.
            await wait_until(lambda: engine.batches == [[1], [7]])
            await asyncio.sleep(0.01)
            engine.on_run = lambda: None
            engine.release()
            assert numbers_in(await request) == [1, 2]
            assert [numbers_in(await one) for one in waiting] == [[7], [8]]
            too_much = await asked_in_rounds(batcher, [embed(1)], [embed(2, tokens=10)])
            with pytest.raises(PayloadTooLarge):
                await too_much

    asyncio.run(main())


def test_a_drain_finishes_all_rounds_of_what_was_accepted() -> None:
    async def main() -> None:
        engine = FakeEngine()
        async with running_batcher(engine) as batcher:
            engine.hold()
            request = await asked_in_rounds(batcher, [embed(1)], [embed(2)], [embed(3)])
            await engine.has_entered()
            draining = asyncio.create_task(batcher.drain(timeout_seconds=PATIENCE_SECONDS))
            await asyncio.sleep(0)
            with pytest.raises(Unhealthy):
                await batcher.submit([embed(9)], client="x", deadline=None)
            engine.release()
            assert numbers_in(await request) == [1, 2, 3]
            await draining
        assert engine.batches == [[1], [2], [3]]

    asyncio.run(main())


def test_a_client_that_leaves_in_a_later_round_gives_up_its_place() -> None:
    async def main() -> None:
        engine, metrics = FakeEngine(), Metrics()
        async with running_batcher(engine, metrics=metrics) as batcher:
            engine.hold()
            request = await asked_in_rounds(batcher, [embed(1)], [embed(2)])
            await engine.has_entered()
            other = await submitted(batcher, embed(5))
            engine.on_run = engine.hold
            engine.release()
            await wait_until(lambda: engine.batches == [[1], [5]] and series(metrics, "te_queue_size") == 1)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            engine.on_run = lambda: None
            engine.release()
            assert numbers_in(await other) == [5]
        assert engine.batches == [[1], [5]]
        assert series(metrics, 'bert_items_dropped_total{reason="cancelled"}') == 1

    asyncio.run(main())


def test_what_takes_no_pass_is_answered_at_once() -> None:
    async def main() -> None:
        engine, metrics = FakeEngine(), Metrics()
        async with running_batcher(engine, metrics=metrics, max_queue_tokens=4) as batcher:
            decode = Decode(ids=(4, 7))
            entries = await batcher.submit(
                [decode, embed(1, tokens=2), Embed(text=""), decode], client="x", deadline=None
            )
            assert [entry.result for entry in entries if isinstance(entry, Answer)][::2] == [
                DecodeResult(text="(4, 7)")
            ] * 2
            assert isinstance(entries[2], EmptyInput)
            assert engine.batches == [[1]]
            [alone] = await batcher.submit([decode], client="x", deadline=None)
            assert alone == Answer(
                result=DecodeResult(text="(4, 7)"), timing=Timing(tokenization=0.0), compute_tokens=0
            )
        assert engine.batches == [[1]]
        assert series(metrics, 'bert_tasks_total{task="decode"}') == 3
        assert series(metrics, "te_request_input_length_count") == 1

    asyncio.run(main())
