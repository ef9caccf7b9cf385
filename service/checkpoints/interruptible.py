"""Signals during a command that waits for the network."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import TypeVar

ResultT = TypeVar("ResultT")


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Within it SIGINT and SIGTERM raise KeyboardInterrupt in the main thread, so that clean-up runs.

    A shell without job control starts what it puts in the background with SIGINT ignored.
    """
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def in_daemon_thread(function: Callable[[], ResultT]) -> ResultT:
    """Call a function that an interrupt shall not have to wait for, as the hub's client waits for running downloads."""
    future: Future[ResultT] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future.result()
