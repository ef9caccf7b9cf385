"""The service as its own process on a free port, as a user starts it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parent.parent

START_SECONDS = 90


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A running service: its process, and where it listens."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path


@contextlib.contextmanager
def live_server(folder: Path, *flags: str, environment: Mapping[str, str] | None = None) -> Iterator[LiveServer]:
    """Start `python -m service serve` with these flags, wait until it is ready, and stop it at the end.

    Args:
        folder: where its log goes.
        flags: as on the command line; the port is a free one.
        environment: added to this process's.
    """
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "serve", "--host", "127.0.0.1", "--port", "0", *flags],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=output,
        )
    try:
        yield LiveServer(process, _ready_url(process, log), log)
    finally:
        process.terminate()
        process.wait(30)


def _ready_url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text()):
            url = f"http://127.0.0.1:{found[1]}"
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/health/ready").status_code == 200:
                    return url
        time.sleep(0.1)
    raise AssertionError(f"not ready after {START_SECONDS} s:\n{log.read_text()}")
