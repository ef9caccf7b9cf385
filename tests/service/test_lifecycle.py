from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from service.batching.batcher import Batcher
from service.batching.policy import QueueLimits
from service.batching.submission import one_round
from service.errors import Unhealthy
from service.lifecycle import ModelLifecycle, ServedEngine
from service.observability.metrics import Metrics
from service.tasks import Embed
from tests.service.fake_engine import FAKE_INFO, PATIENCE_SECONDS, FakeEngine
from tests.service.serving import until

TASKS = [Embed(text="a")]


def make_batcher(engine: ServedEngine, budget: int, on_failure: Callable[[BaseException], None]) -> Batcher[Any]:
    limits = QueueLimits(max_concurrent_requests=7, max_queue_tokens=99, max_batch_tokens=budget)
    return Batcher(
        engine, limits=limits, metrics=Metrics(), pass_timeout_seconds=PATIENCE_SECONDS, on_failure=on_failure
    )


def lifecycle_of(load: Callable[[], ServedEngine]) -> ModelLifecycle:
    return ModelLifecycle(load=load, make_batcher=make_batcher, max_batch_tokens=None)


def assert_nothing_is_served(lifecycle: ModelLifecycle, reason: str) -> None:
    assert lifecycle.unready_reason() == reason
    asked: tuple[Callable[[], object], ...] = (
        lifecycle.check_ready,
        lambda: lifecycle.check_admission(client="x", deadline=None),
        lambda: lifecycle.info,
        lambda: lifecycle.max_batch_tokens,
    )
    for ask in asked:
        with pytest.raises(Unhealthy, match=reason):
            ask()


def test_the_event_loop_is_free_while_the_model_loads_and_warms_up() -> None:
    async def run() -> None:
        loaded, warmed = threading.Event(), threading.Event()

        def load() -> FakeEngine:
            assert loaded.wait(PATIENCE_SECONDS)
            return FakeEngine(warm_up_with=lambda: warmed.wait(PATIENCE_SECONDS))

        lifecycle = lifecycle_of(load)
        lifecycle.start()
        await asyncio.sleep(0.01)
        assert_nothing_is_served(lifecycle, "the model is loading")
        loaded.set()
        await until(lambda: lifecycle.unready_reason() == "the model is warming up")
        assert_nothing_is_served(lifecycle, "the model is warming up")
        warmed.set()
        await until(lambda: lifecycle.unready_reason() is None)
        lifecycle.check_admission(client="x", deadline=None)
        assert lifecycle.max_batch_tokens == 101
        assert len(await lifecycle.submit_rounds(one_round(TASKS), client="x", deadline=None)) == 1
        await lifecycle.drain(timeout_seconds=PATIENCE_SECONDS)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("missing", "heads"),
    [
        ((), "pooler, mlm, nsp"),
        (("mlm",), "pooler, nsp (missing: mlm)"),
        (("pooler", "nsp"), "mlm (missing: pooler, nsp)"),
    ],
)
def test_one_line_tells_what_is_served(missing: tuple[str, ...], heads: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        lifecycle = lifecycle_of(lambda: FakeEngine(info=replace(FAKE_INFO, heads_missing=missing)))
        lifecycle.start()
        await until(lambda: lifecycle.unready_reason() is None)
        await lifecycle.drain(timeout_seconds=PATIENCE_SECONDS)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    [line] = [record.getMessage() for record in caplog.records if record.name == "service.lifecycle"]
    assert re.sub(r"\d+\.\d s", "N s", line) == (
        f"ready: fake on cpu in float32; heads: {heads}; pooling: mean; max_batch_tokens: 101; max_input_length: 13; "
        "N s after the start"
    )


@pytest.mark.parametrize("where", ["load", "warm_up"])
def test_a_model_that_cannot_start_is_a_failure(where: str) -> None:
    async def run() -> None:
        error = LookupError("broken")

        def fail() -> None:
            raise error

        def load() -> FakeEngine:
            if where == "load":
                fail()
            return FakeEngine(warm_up_with=fail)

        told = asyncio.Event()
        lifecycle = lifecycle_of(load)
        lifecycle.on_failure = told.set
        lifecycle.start()
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        assert lifecycle.failure is error
        assert_nothing_is_served(lifecycle, "the model has failed and the service must be restarted")
        await lifecycle.drain(timeout_seconds=0)

    asyncio.run(run())


@pytest.mark.parametrize("kind", [BaseException, SystemExit, KeyboardInterrupt])
def test_what_is_no_exception_is_a_failure_too(kind: type[BaseException]) -> None:
    async def run() -> None:
        error = kind("panicked")

        def load() -> FakeEngine:
            raise error

        told = asyncio.Event()
        lifecycle = lifecycle_of(load)
        lifecycle.on_failure = told.set
        lifecycle.start()
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        assert isinstance(lifecycle.failure, RuntimeError)
        assert str(lifecycle.failure) == f"{kind.__name__}: panicked"
        assert lifecycle.failure.__cause__ is error
        assert_nothing_is_served(lifecycle, "the model has failed and the service must be restarted")
        await lifecycle.drain(timeout_seconds=0)

    asyncio.run(run())


def test_a_device_that_dies_turns_readiness_off_for_good(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        told = asyncio.Event()
        lifecycle = lifecycle_of(FakeEngine)
        lifecycle.on_failure = told.set
        lifecycle.start()
        await until(lambda: lifecycle.unready_reason() is None)
        [answer] = await lifecycle.submit_rounds(one_round([Embed(text="poison")]), client="x", deadline=None)
        assert isinstance(answer, Unhealthy)
        await asyncio.wait_for(told.wait(), PATIENCE_SECONDS)
        lifecycle.announce_shutdown()
        assert lifecycle.unready_reason() == "the model has failed and the service must be restarted"
        with pytest.raises(Unhealthy):
            lifecycle.check_admission(client="x", deadline=None)
        assert isinstance(lifecycle.failure, Unhealthy)
        await lifecycle.drain(timeout_seconds=0)

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(run())


def test_shutdown_is_announced_before_anything_is_refused() -> None:
    async def run() -> None:
        engine = FakeEngine()
        lifecycle = lifecycle_of(lambda: engine)
        lifecycle.start()
        await until(lambda: lifecycle.unready_reason() is None)
        lifecycle.announce_shutdown()
        assert lifecycle.unready_reason() == "the service is shutting down"
        assert len(await lifecycle.submit_rounds(one_round(TASKS), client="x", deadline=None)) == 1
        engine.gate.clear()
        engine.entered.clear()
        accepted = asyncio.create_task(lifecycle.submit_rounds(one_round(TASKS), client="x", deadline=None))
        await until(engine.entered.is_set)
        draining = asyncio.create_task(lifecycle.drain(timeout_seconds=PATIENCE_SECONDS))
        await asyncio.sleep(0.01)
        with pytest.raises(Unhealthy):
            await lifecycle.submit_rounds(one_round(TASKS), client="x", deadline=None)
        engine.gate.set()
        await draining
        assert len(await accepted) == 1
        await lifecycle.drain(timeout_seconds=0)

    asyncio.run(run())


def test_a_shutdown_while_loading_does_not_wait_for_the_model() -> None:
    async def run() -> None:
        loaded = threading.Event()

        def load() -> FakeEngine:
            assert loaded.wait(PATIENCE_SECONDS)
            return FakeEngine()

        lifecycle = lifecycle_of(load)
        lifecycle.start()
        await asyncio.sleep(0.01)
        await asyncio.wait_for(lifecycle.drain(timeout_seconds=PATIENCE_SECONDS), 1)
        loaded.set()
        await asyncio.sleep(0.02)
        assert lifecycle.unready_reason() == "the service is shutting down"
        assert lifecycle.failure is None

    asyncio.run(run())


def test_it_is_told_once_when_the_model_is_ready() -> None:
    told: list[str | None] = []

    async def run() -> None:
        lifecycle = lifecycle_of(FakeEngine)
        lifecycle.on_ready = lambda: told.append(lifecycle.unready_reason())
        lifecycle.start()
        await until(lambda: lifecycle.unready_reason() is None)
        await lifecycle.drain(timeout_seconds=PATIENCE_SECONDS)

    asyncio.run(run())
    assert told == [None]
