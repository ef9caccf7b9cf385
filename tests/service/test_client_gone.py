"""Clients that go away at any stage of a request to a live server, and connections that go on after an error."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.service.fake_engine import PATIENCE_SECONDS
from tests.service.server_process import FULL, embed, server
from tests.service.serving import wait_until

PASS_SECONDS = 0.2
PAYLOAD_LIMIT = 1_000_000
CLIENTS = 20


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str, Path]]:
    """The server's process id, its URL and its log."""
    log = tmp_path_factory.mktemp("server") / "log"
    with server(log, "--payload-limit", str(PAYLOAD_LIMIT), pass_seconds=PASS_SECONDS) as (process, url):
        yield process.pid, url, log


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that an answer that is not read stays there
    client.settimeout(PATIENCE_SECONDS)
    client.connect((parts.hostname, parts.port))
    return client


def request(path: str, inputs: object) -> bytes:
    body = json.dumps({"inputs": inputs}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def metric(url: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", httpx.get(f"{url}/metrics").text, flags=re.MULTILINE)
    assert found
    return float(found[1])


def open_files(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


LONG_ANSWER = request("/tokenize", "word " * 90_000)


def before_the_head_is_whole(url: str) -> list[socket.socket]:
    return sent(url, request("/embed", FULL)[:30])


def before_the_body_is_whole(url: str) -> list[socket.socket]:
    return sent(url, request("/embed", FULL)[:-5])


def during_a_pass_and_in_the_queue(url: str) -> list[socket.socket]:
    clients = sent(url, request("/embed", FULL))
    wait_until(lambda: metric(url, "te_queue_size") >= CLIENTS - 2)
    return clients


def while_the_answer_is_read(url: str) -> list[socket.socket]:
    clients = sent(url, LONG_ANSWER, count=3)
    for client in clients:
        assert client.recv(500).startswith(b"HTTP/1.1 200 ")
    return clients


def before_the_answer_is_read(url: str) -> list[socket.socket]:
    before = metric(url, 'te_request_success{method="single"}')
    clients = sent(url, LONG_ANSWER, count=3)
    wait_until(lambda: metric(url, 'te_request_success{method="single"}') >= before + 3)
    return clients


def sent(url: str, content: bytes, *, count: int = CLIENTS) -> list[socket.socket]:
    clients = [connected(url) for _ in range(count)]
    for client in clients:
        client.sendall(content)
    return clients


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    "stage",
    [
        before_the_head_is_whole,
        before_the_body_is_whole,
        during_a_pass_and_in_the_queue,
        while_the_answer_is_read,
        before_the_answer_is_read,
    ],
)
def test_clients_that_go_away_leave_nothing_behind(
    running: tuple[int, str, Path], stage: Callable[[str], list[socket.socket]], resets: bool
) -> None:
    pid, url, log = running
    files, said = open_files(pid), len(log.read_text())
    for client in stage(url):
        if resets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        client.close()
    started = time.monotonic()
    assert embed(url).status_code == 200
    # The pass that ran, one that may have begun before all had gone, its own, and some room on a busy machine.
    assert time.monotonic() - started < 3 * PASS_SECONDS + 1
    wait_until(lambda: metric(url, "te_queue_size") == 0 and open_files(pid) <= files)
    assert not re.search("ERROR|Traceback", log.read_text()[said:])


@pytest.mark.parametrize(
    ("path", "content", "headers", "status"),
    [
        ("/embed", b"{}", {}, 422),
        ("/embed", b"{", {}, 422),
        ("/embed", b"", {}, 422),
        ("/embed", b'{"inputs": ""}', {}, 400),
        ("/embed", b'{"inputs": "boom"}', {}, 500),
        ("/embed", b'{"inputs": "a"}', {"content-type": "text/plain"}, 415),
        ("/embed", b'{"inputs": "a"}', {"content-encoding": "gzip"}, 415),
        ("/embed", b'{"inputs": "a"}', {"x-request-timeout-ms": "no"}, 422),
        ("/embed", b" " * (PAYLOAD_LIMIT + 1), {}, 413),
        ("/embed", b"[" * 10 * PAYLOAD_LIMIT, {}, 413),
        ("/nowhere", b'{"inputs": "a"}', {}, 404),
        ("/health", b'{"inputs": "a"}', {}, 405),
        ("/nowhere", b" " * (PAYLOAD_LIMIT + 1), {}, 404),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_after_an_error_the_next_request_is_answered(
    running: tuple[int, str, Path], path: str, content: bytes, headers: dict[str, str], status: int, chunked: bool
) -> None:
    def parts() -> Iterator[bytes]:
        yield from (content[first : first + 65_536] for first in range(0, len(content), 65_536))

    _, url, _ = running
    with httpx.Client(base_url=url, limits=httpx.Limits(max_connections=1), timeout=PATIENCE_SECONDS) as client:
        json_type = {"content-type": "application/json"}
        refused = client.post(path, content=parts() if chunked else content, headers={**json_type, **headers})
        assert refused.status_code == status
        assert refused.json().keys() == {"error", "error_type"}
        assert client.post("/embed", json={"inputs": "a"}).status_code == 200


def test_clients_that_never_read_do_not_hold_up_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with server(log, "--drain-timeout-seconds", str(2 * PATIENCE_SECONDS)) as (process, url):
        idle = httpx.Client(base_url=url)
        assert idle.get("/health/live").status_code == 200
        clients = before_the_answer_is_read(url)
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0
        for client in clients:
            client.close()
        idle.close()
    assert "ERROR" not in log.read_text()
