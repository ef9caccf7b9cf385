"""The whole process, with an engine without a model: signals, sockets and exit codes."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from service import server as server_module
from service.app import create_app
from service.server import GARBAGE_OBJECTS, Server, address, listen
from service.settings import Settings
from tests.service.fake_engine import PATIENCE_SECONDS, FakeEngine
from tests.service.server_process import embed, requests_received, server
from tests.service.serving import wait_until


def test_every_accepted_request_is_answered_before_the_process_ends(tmp_path: Path) -> None:
    with (
        server(tmp_path / "log", "--shutdown-delay-seconds", "2.0", pass_seconds=0.2) as (process, url),
        ThreadPoolExecutor(8) as threads,
        httpx.Client(base_url=url) as idle,
    ):
        assert idle.get("/health/ready").status_code == 200
        first = [threads.submit(embed, url) for _ in range(5)]
        wait_until(lambda: requests_received(url) == 5)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(f"{url}/health/ready").status_code == 503)
        assert httpx.get(f"{url}/health/live").status_code == 200
        second = [threads.submit(embed, url) for _ in range(2)]
        assert [answer.result().status_code for answer in [*first, *second]] == [200] * 7
        assert process.wait(PATIENCE_SECONDS) == 0
        with pytest.raises(httpx.ConnectError):
            embed(url)


def test_what_cannot_be_finished_in_time_gets_a_clean_503(tmp_path: Path) -> None:
    with (
        server(tmp_path / "log", "--drain-timeout-seconds", "0.2", pass_seconds=60) as (process, url),
        ThreadPoolExecutor(4) as threads,
    ):
        answers = [threads.submit(embed, url) for _ in range(4)]
        wait_until(lambda: requests_received(url) == 4)
        process.send_signal(signal.SIGTERM)
        for answer in answers:
            assert answer.result().status_code == 503
            assert answer.result().json()["error_type"] == "Unhealthy"
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_half_sent_body_does_not_hold_up_the_end(tmp_path: Path) -> None:
    head = b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
    with server(tmp_path / "log", "--drain-timeout-seconds", str(2 * PATIENCE_SECONDS)) as (process, url):
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_SECONDS) as half:
            half.sendall(head)
            assert httpx.get(f"{url}/health/live").status_code == 200  # by now the half is read as well
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
            assert half.recv(4096).startswith(b"HTTP/1.1 503 ")


def test_at_the_end_who_reads_slowly_is_waited_for_and_who_does_not_read_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_module, "GRACE_SECONDS", 0.3)
    answer = bytes(30_000_000)
    settings = Settings(host="127.0.0.1", port=0, drain_timeout_seconds=6 * PATIENCE_SECONDS)
    running = Server(
        Starlette(routes=[Route("/", lambda _: Response(answer))]),
        lifecycle=create_app(settings, FakeEngine()).state.lifecycle,
        settings=settings,
        refuse=lambda _: None,
    )

    async def test() -> None:
        [listener] = listen(settings)
        serving = asyncio.create_task(running.serve(sockets=[listener]))
        clients = [await asyncio.open_connection(*listener.getsockname()) for _ in range(2)]
        for reader, writer in clients:
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        running.stop()
        slow, _ = clients[0]
        length = 0
        while part := await slow.read(len(answer)):
            length += len(part)
            await asyncio.sleep(0.005)
        assert length == len(answer)
        await serving
        for _, writer in clients:
            writer.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with server(tmp_path / "log", "--shutdown-delay-seconds", "60") as (process, _):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0


def test_a_dead_device_ends_the_process_with_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log) as (process, url):
        assert embed(url, "poison").status_code == 503
        assert process.wait(PATIENCE_SECONDS) == 1
    assert "CRITICAL" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_settings_that_do_not_fit_the_model_end_the_process_with_a_plain_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "--max-batch-tokens", "7") as (process, _):
        assert process.wait(PATIENCE_SECONDS) == 1
    fault = "bert-service: --max-batch-tokens (MAX_BATCH_TOKENS) is 7 and the model's max_input_length is 13"
    assert fault in log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_unix_socket_behind_a_proxy_that_takes_off_a_prefix(tmp_path: Path) -> None:
    path, log = tmp_path / "socket", tmp_path / "log"
    with (
        server(log, "--uds", str(path), "--root-path", "/bert", "--json-output") as (process, _),
        httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://bert") as client,
    ):
        assert client.post("/embed", json={"inputs": "a"}).status_code == 200
        assert client.get("/docs").status_code == 200
        assert client.get("/static/docs/docs.js").status_code == 200
        assert client.get("/openapi.json").json()["servers"] == [{"url": "/bert"}]
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert not path.exists()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    asked = {(line["path"], line["client"], line["status"]) for line in lines if line["message"] == "request"}
    assert asked == {(route, "local", 200) for route in ("/embed", "/docs", "/static", "/openapi.json")}
    lines = [line for line in lines if line["message"] != "request"]
    told = [(line["level"], re.sub("^ready: .*", "ready", line["message"])) for line in lines]
    assert told == [("INFO", f"listening on {path}"), ("INFO", "ready"), ("INFO", "shutting down"), ("INFO", "stopped")]
    assert not any(line["logger"].startswith("uvicorn") for line in lines)


def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    with listen(Settings(host="127.0.0.1", port=0))[0] as taken:
        port = taken.getsockname()[1]
        assert address(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(OSError, match="cannot listen") as caught:
            listen(Settings(host="127.0.0.1", port=port))
    assert caught.value.strerror == f"cannot listen on 127.0.0.1 port {port}: Address already in use"


def test_ipv6_is_listened_on() -> None:
    with listen(Settings(host="::1", port=0))[0] as listener:
        assert address(listener) == f"http://[::1]:{listener.getsockname()[1]}"


def test_a_socket_file_left_behind_is_replaced_but_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    for _ in range(2):
        with listen(Settings(uds=str(path)))[0] as listener:
            assert address(listener) == str(path)
    assert path.is_socket()
    other = tmp_path / "file"
    other.write_text("keep")
    with pytest.raises(OSError, match=f"cannot listen on {other}"):
        listen(Settings(uds=str(other)))
    assert other.read_text() == "keep"


def test_a_socket_file_of_a_running_server_is_not_taken(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with listen(Settings(uds=path))[0] as first:
        for _ in range(2):
            with pytest.raises(OSError, match="cannot listen") as caught:
                listen(Settings(uds=path))
            assert caught.value.errno == errno.EADDRINUSE
            assert caught.value.strerror == f"cannot listen on {path}: Address already in use"
        first.settimeout(PATIENCE_SECONDS)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(b"x")
            received = []
            for _ in range(3):
                with first.accept()[0] as connection:
                    received.append(connection.recv(1))
    assert received == [b"", b"", b"x"]


def test_what_is_there_when_the_model_is_ready_is_no_more_looked_at_as_garbage() -> None:
    app = create_app(Settings(), FakeEngine())
    thresholds = gc.get_threshold()
    Server(app, lifecycle=app.state.lifecycle, settings=Settings(), refuse=app.state.refuse)
    try:
        app.state.lifecycle.on_ready()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == (GARBAGE_OBJECTS, *thresholds[1:])
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
