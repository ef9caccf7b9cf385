"""The command as its own process, with an engine without a model, and what tests ask of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.service.fake_engine import PATIENCE_SECONDS
from tests.service.serving import wait_until

START_SECONDS = 60
"""Time for several interpreters to start on a busy machine."""

ROOT = Path(__file__).resolve().parents[2]

# As many words as a pass of the fake engine may have: each text has a pass of its own.
FULL = "w " * 13


@contextmanager
def server(
    log: Path,
    *flags: str,
    pass_seconds: float = 0.0,
    workers: int = 1,
    module: str = "tests.service.fake_server",
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A ready process and its URL.

    The process leads a group of its own, as at a terminal. The end of its standard output is the end of all processes
    that it has started.
    """
    place = [] if "--uds" in flags else ["--host", "127.0.0.1", "--port", "0"]
    command = [sys.executable, "-m", module, str(pass_seconds), *place, *flags]
    command += ["--workers", str(workers)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=output, process_group=0)

    def has_started() -> bool:
        return process.poll() is not None or log.read_bytes().count(b"ready: fake") == workers

    try:
        wait_until(has_started, seconds=START_SECONDS)
        found = re.search(r'listening on ([^\s"]+)', log.read_text())
        assert found, log.read_text()
        yield process, found[1]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_SECONDS)


def embed(url: str, text: str = FULL) -> httpx.Response:
    return httpx.post(f"{url}/embed", json={"inputs": text}, timeout=PATIENCE_SECONDS)


def requests_received(url: str) -> float:
    found = re.search(r'te_request_count{method="single"} (\S+)', httpx.get(f"{url}/metrics").text)
    assert found
    return float(found[1])
