"""Several processes behind one address, with an engine without a model: who answers, what is counted, how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.__main__ import main
from service.server import address, listen
from service.settings import Settings
from tests.service.fake_engine import PATIENCE_SECONDS
from tests.service.server_process import embed, requests_received, server
from tests.service.serving import wait_until

WORKERS = 2


def end_of_all(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of the command and of every process that it started; returns its exit code."""
    process.communicate(timeout=2 * PATIENCE_SECONDS)
    return process.returncode


def workers_of(log: Path) -> list[int]:
    return [int(found) for found in re.findall(r"ready: fake .* worker=(\d+)", log.read_text())]


def test_all_workers_answer_and_each_shows_what_all_have_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "--api-key", "sesame", workers=WORKERS) as (_, url):
        # A connection each: all to the same worker only once in 2 ** 29 times.
        headers = {"authorization": "Bearer sesame"}
        answers = [httpx.get(f"{url}/info", headers=headers).json()["revision"] for _ in range(30)]
        assert set(answers) == {f"{number} in {pid}" for number, pid in enumerate(sorted(workers_of(log)))}
        assert embed(url).status_code == 401
        for _ in range(13):
            answer = httpx.post(f"{url}/embed", json={"inputs": "a"}, headers=headers)
            assert answer.status_code == 200
        wait_until(lambda: requests_received(url) == 13)
        time.sleep(0.3)  # by now every worker has published
        assert {requests_received(url) for _ in range(30)} == {13}


def to_the_parent(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)


def to_all(process: subprocess.Popen[bytes]) -> None:
    """As a terminal does on Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.parametrize("send_signal", [to_the_parent, to_all])
def test_a_signal_ends_all_workers_when_they_have_answered(
    send_signal: Callable[[subprocess.Popen[bytes]], None], tmp_path: Path
) -> None:
    with (
        server(tmp_path / "log", pass_seconds=0.2, workers=WORKERS) as (process, url),
        ThreadPoolExecutor(8) as threads,
    ):
        answers = [threads.submit(embed, url) for _ in range(8)]
        wait_until(lambda: requests_received(url) == 8)
        send_signal(process)
        assert [answer.result().status_code for answer in answers] == [200] * 8
        assert end_of_all(process) == 0
        with pytest.raises(httpx.ConnectError):
            embed(url)


def test_workers_share_a_unix_socket_and_remove_it(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with server(tmp_path / "log", "--uds", str(path), workers=WORKERS) as (process, _):
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://bert/health/ready").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert end_of_all(process) == 0
    assert not path.exists()


def test_a_second_signal_ends_at_once_even_workers_that_hang(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "--shutdown-delay-seconds", "60", workers=WORKERS) as (process, _):
        os.kill(workers_of(log)[0], signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert end_of_all(process) == 0


def test_the_death_of_one_worker_is_told_and_ends_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, workers=WORKERS) as (process, _):
        victim = workers_of(log)[0]
        os.kill(victim, signal.SIGKILL)
        assert end_of_all(process) == 1
    assert log.read_text().count("bert-service: ") == 1
    assert f"bert-service: worker {victim} was killed by SIGKILL\n" in log.read_text()


def test_a_dead_device_of_one_worker_is_told_once_and_ends_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, workers=WORKERS) as (process, url):
        assert embed(url, "poison").status_code == 503
        assert end_of_all(process) == 1
    assert log.read_text().count("CRITICAL service: the model has failed exception=") == 1
    assert "Traceback" not in log.read_text()


def test_no_worker_outlives_the_parent(tmp_path: Path) -> None:
    with server(tmp_path / "log", workers=WORKERS) as (process, _):
        process.kill()
        assert end_of_all(process) == -signal.SIGKILL


def test_a_fault_that_all_workers_find_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    command = [
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--workers",
        str(WORKERS),
        "--model-id",
        "/no/such/folder",
    ]
    assert main(command) == 1
    assert signal.getsignal(signal.SIGTERM) is handler
    told = capfd.readouterr().err
    assert told.count("bert-service: /no/such/folder") == 1
    assert "Traceback" not in told


def test_a_port_of_several_workers_is_theirs_alone() -> None:
    settings = Settings(host="127.0.0.1", port=0, workers=WORKERS)
    listeners = listen(settings)
    try:
        assert len({listener.fileno() for listener in listeners}) == (WORKERS if sys.platform == "linux" else 1)
        assert len({address(listener) for listener in listeners}) == 1
        for workers in (1, WORKERS):
            taken = settings.model_copy(update={"port": listeners[0].getsockname()[1], "workers": workers})
            with pytest.raises(OSError, match="Address already in use"):
                listen(taken)
    finally:
        for listener in listeners:
            listener.close()
