"""What a run shows while it goes on: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import asyncio
from typing import TextIO

from service.load_generator.load import LoadGenerator

BAR_WIDTH = 30
BAR_INTERVAL_SECONDS = 0.2
LINE_INTERVAL_SECONDS = 5.0


async def show_progress(load: LoadGenerator, *, duration_seconds: float, stream: TextIO) -> None:
    """Until cancelled."""
    on_terminal = stream.isatty()
    try:
        while True:
            await asyncio.sleep(BAR_INTERVAL_SECONDS if on_terminal else LINE_INTERVAL_SECONDS)
            seconds = load.measured_seconds
            line = _line(load, seconds=seconds, duration_seconds=duration_seconds)
            if on_terminal:
                filled = round(BAR_WIDTH * seconds / duration_seconds)
                stream.write(f"\r[{'#' * filled:<{BAR_WIDTH}}] {line}\x1b[K")
            else:
                stream.write(f"{line}\n")
            stream.flush()
    finally:
        if on_terminal:
            stream.write("\r\x1b[K")
            stream.flush()


def _line(load: LoadGenerator, *, seconds: float, duration_seconds: float) -> str:
    if not seconds:
        return "warming up"
    if seconds == duration_seconds:
        return "waiting for the last answers"
    measured = load.measurements
    line = f"{seconds:.1f} of {duration_seconds:g} s, {measured.texts / seconds:,.1f} texts/s"
    failed = measured.failures.total()
    return f"{line}, {failed:,} failed" if failed else line
