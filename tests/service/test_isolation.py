"""A server of a folder looks up no name, connects to nobody and writes no file, as in a container without either."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from bert_core import save_pretrained
from tests.live_server import ROOT
from tests.service.serving import wait_until
from tests.tiny import tiny_config, tiny_model, write_tiny_vocabulary

START_SECONDS = 60

# Runs in the server's process; what the libraries do is seen too.
AUDITED = """
import os, sys

writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
told = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)

def audit(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & writes and arguments[0] != os.devnull:
        os.write(told, f"writes {arguments[0]}\\n".encode())
    elif event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "subprocess.Popen"):
        os.write(told, f"{event} {arguments[1:]}\\n".encode())
    elif event in ("os.mkdir", "os.rename", "os.remove"):
        os.write(told, f"{event} {arguments}\\n".encode())

sys.addaudithook(audit)
from service.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


@contextmanager
def audited(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path, Path]]:
    """The command as a process without a home; with its log, and a file of what it did."""
    log, told = folder / "log", folder / "told"
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nowhere", "TMPDIR": "/nowhere"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", AUDITED, told, *arguments], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
    try:
        yield process, log, told
    finally:
        process.kill()
        process.wait(START_SECONDS)


def test_a_server_of_a_folder_keeps_to_itself(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_pretrained(tiny_model(tiny_config()), model)
    write_tiny_vocabulary(model)
    before = {file.name: file.stat().st_mtime_ns for file in model.iterdir()}
    flags = ["serve", "--model-id", str(model), "--host", "127.0.0.1", "--port", "0", "--device", "cpu"]
    with audited(tmp_path, *flags) as (process, log, told):
        wait_until(lambda: process.poll() is not None or "ready: " in log.read_text(), seconds=START_SECONDS)
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", log.read_text())
        assert found, log.read_text()
        for path, inputs in (("/embed", "a"), ("/fill-mask", "[MASK]"), ("/next-sentence", ["a", "b"])):
            assert httpx.post(f"{found[1]}{path}", json={"inputs": inputs}).status_code == 200
        assert httpx.get(f"{found[1]}/docs").status_code == 200
        process.terminate()
        assert process.wait(START_SECONDS) == 0
    assert told.read_text() == ""
    assert {file.name: file.stat().st_mtime_ns for file in model.iterdir()} == before


@pytest.mark.parametrize("name", ["missing/model/folder", "/missing", "./missing"])
def test_a_folder_that_is_not_there_is_told_and_looked_for_nowhere_else(tmp_path: Path, name: str) -> None:
    flags = ["serve", "--model-id", name, "--port", "0", "--json-output"]
    with audited(tmp_path, *flags) as (process, log, told):
        assert process.wait(START_SECONDS) == 1
    assert "socket" not in told.read_text()
    assert name.removeprefix("./") in log.read_text()
    assert "Traceback" not in log.read_text()
