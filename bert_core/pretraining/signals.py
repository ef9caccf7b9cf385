"""A run that is interrupted saves what it has."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def stops_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run after its step, saved; a second one at once, as they do by themselves."""
    before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop()
        for name, handler in before.items():
            signal.signal(name, handler)

    for name in (signal.SIGINT, signal.SIGTERM):
        before[name] = signal.signal(name, handle)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
