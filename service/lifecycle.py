"""The model from loading to draining: what is ready when, and what happens when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from service.batching.batcher import Batcher, BatcherState
from service.batching.protocol import BatchEngine
from service.batching.submission import Entry, Rounds
from service.errors import Unhealthy
from service.tasks import ModelInfo

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

HEADS = ("pooler", "mlm", "nsp")


class ServedEngine(BatchEngine[Any], Protocol):
    """An engine that can be served."""

    @property
    def info(self) -> ModelInfo: ...

    def warm_up(self) -> int:
        """Run every head once; returns the token budget of a pass."""
        ...


class Phase(enum.Enum):
    """How far the model is; the value tells a client why it is of no use yet, or no longer."""

    LOADING = "the model is loading"
    WARMING_UP = "the model is warming up"
    READY = "the model is ready"
    FAILED = "the model has failed and the service must be restarted"


class ModelLifecycle:
    """Loads and warms up an engine beside the event loop, then serves it through a batcher, then drains that.

    Args:
        load: makes the engine; runs in a thread of its own.
        make_batcher: makes the batcher from the engine, the token budget of a pass and what to call when it dies.
        max_batch_tokens: the token budget; None takes what the warm-up finds.
    """

    def __init__(
        self,
        *,
        load: Callable[[], ServedEngine],
        make_batcher: Callable[[ServedEngine, int, Callable[[BaseException], None]], Batcher[Any]],
        max_batch_tokens: int | None,
    ) -> None:
        self._load = load
        self._make_batcher = make_batcher
        self._phase = Phase.LOADING
        self._started_at = 0.0
        self._bring_up: asyncio.Task[None] | None = None
        self._info: ModelInfo | None = None
        self._max_batch_tokens = max_batch_tokens
        self._shutting_down = False
        self._batcher: Batcher[Any] | None = None
        self.failure: BaseException | None = None
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None
        self.on_drain: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to load; returns at once."""
        self._started_at = time.monotonic()
        self._bring_up = asyncio.create_task(self._bring_up_or_fail(), name="load model")

    def announce_shutdown(self) -> None:
        """Turn readiness off while requests are still accepted, so that load balancers can look elsewhere first."""
        self._shutting_down = True

    async def drain(self, *, timeout_seconds: float) -> None:
        """Finish accepted requests; those left at the timeout get `Unhealthy`. A second call does nothing."""
        self.announce_shutdown()
        self.on_drain()
        if self._bring_up is not None:
            self._bring_up.cancel()
            await asyncio.wait([self._bring_up])
        if self._batcher is not None and self._batcher.state is not BatcherState.STOPPED:
            await self._batcher.drain(timeout_seconds=timeout_seconds)

    @property
    def info(self) -> ModelInfo:
        """Raises Unhealthy while there is no model yet."""
        if self._info is None:
            raise Unhealthy(self._phase.value)
        return self._info

    @property
    def max_batch_tokens(self) -> int:
        """The token budget of a pass; raises Unhealthy while there is no model yet."""
        if self._max_batch_tokens is None:
            raise Unhealthy(self._phase.value)
        return self._max_batch_tokens

    def unready_reason(self) -> str | None:
        """Why requests should go elsewhere; None if they should come."""
        if self._shutting_down and self._phase is not Phase.FAILED:
            return "the service is shutting down"
        reason: str = self._phase.value
        return None if self._phase is Phase.READY else reason

    def check_ready(self) -> None:
        """Raises Unhealthy if requests should go elsewhere."""
        reason = self.unready_reason()
        if reason is not None:
            raise Unhealthy(reason)

    def check_admission(self, *, client: str, deadline: float | None) -> None:
        """Raises Overloaded or Unhealthy if nothing could be taken on now, or answered before the deadline."""
        self._served().check_admission(client=client, deadline=deadline)

    async def submit_rounds(
        self, rounds: Rounds, *, client: str, deadline: float | None, all_or_nothing: bool = False
    ) -> list[Entry]:
        """See `Batcher.submit_rounds`."""
        return await self._served().submit_rounds(
            rounds, client=client, deadline=deadline, all_or_nothing=all_or_nothing
        )

    def _served(self) -> Batcher[Any]:
        if self._batcher is None:
            raise Unhealthy(self._phase.value)
        return self._batcher

    async def _bring_up_or_fail(self) -> None:
        try:
            engine = await _in_daemon_thread(self._load)
            self._phase = Phase.WARMING_UP
            measured = await _in_daemon_thread(engine.warm_up)
            self._max_batch_tokens = self._max_batch_tokens or measured
            batcher = self._make_batcher(engine, self._max_batch_tokens, self._fail)
            await batcher.start()
        except Exception as error:
            self._fail(error)
            return
        self._info = engine.info
        self._batcher = batcher
        self._phase = Phase.READY
        self.on_ready()
        seconds = time.monotonic() - self._started_at
        logger.info("ready: %s", _described(engine.info, max_batch_tokens=self._max_batch_tokens, seconds=seconds))

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._phase = Phase.FAILED
        self.on_failure()


def _described(info: ModelInfo, *, max_batch_tokens: int, seconds: float) -> str:
    """What is served, for one line of the log."""
    heads = ", ".join(head for head in HEADS if head not in info.heads_missing) or "none"
    missing = f" (missing: {', '.join(info.heads_missing)})" if info.heads_missing else ""
    return (
        f"{info.model_id} on {info.device} in {info.dtype}; heads: {heads}{missing}; pooling: {info.pooling}; "
        f"max_batch_tokens: {max_batch_tokens}; max_input_length: {info.max_input_length}; "
        f"{seconds:.1f} s after the start"
    )


async def _in_daemon_thread(function: Callable[[], ResultT]) -> ResultT:
    """Await a blocking function; unlike an executor's, its thread can't hold up the end of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def settle(deliver: Callable[[], None]) -> None:
        if not future.done():
            deliver()

    def run() -> None:
        try:
            deliver = partial(future.set_result, function())
        except Exception as error:
            deliver = partial(future.set_exception, error)
        except BaseException as error:  # as a panic of a Rust library: unanswered, the service would load for ever
            failure = RuntimeError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            deliver = partial(future.set_exception, failure)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, deliver)

    threading.Thread(target=run, name="load model", daemon=True).start()
    return await future
