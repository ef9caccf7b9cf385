"""Connections of a real server on this event loop, with clients that take their time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service import connection, server
from service.connection import MAX_HEAD_BYTES, MAX_PIPELINED_REQUESTS, Connection, Refuse
from service.server import listen
from service.settings import Settings
from tests.service.fake_engine import PATIENCE_SECONDS

UNFINISHED_SECONDS = 0.3

HEAD = b"POST /read HTTP/1.1\r\nhost: a\r\n"
UNREAD = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Tells how long the body is, if the path asks for that, and else answers without reading it."""
    length = len(await Request(scope, receive).body()) if scope["path"] == "/read" else "unread"
    await PlainTextResponse(f"<{length}>")(scope, receive, send)


def let_in(_: Scope) -> None:
    """Refuse nothing."""


@asynccontextmanager
async def connected(
    *, application: ASGIApp = app, refuse: Refuse = let_in, keep_alive_seconds: int = 75
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a running server."""
    config = uvicorn.Config(
        application,
        http=partial(Connection, refuse=refuse),  # type: ignore[arg-type]  # it wants a class, and calls it
        lifespan="off",
        log_config=None,
        timeout_keep_alive=keep_alive_seconds,
    )
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(running.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()
            running.should_exit = True
            await serving


async def received(reader: asyncio.StreamReader, *, seconds: float = PATIENCE_SECONDS) -> bytes:
    """All that comes until the connection is closed, or until the time is over."""
    content = bytearray()
    with suppress(TimeoutError, ConnectionResetError):
        async with asyncio.timeout(seconds):
            while part := await reader.read(65_536):
                content += part
    return bytes(content)


def in_loop(monkeypatch: pytest.MonkeyPatch, test: Callable[[], Coroutine[None, None, None]]) -> None:
    monkeypatch.setattr(connection, "UNFINISHED_REQUEST_SECONDS", UNFINISHED_SECONDS)
    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


async def drip(
    writer: asyncio.StreamWriter, parts: list[bytes], *, pause_seconds: float = UNFINISHED_SECONDS / 10
) -> None:
    with suppress(OSError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_seconds)


@pytest.mark.parametrize(
    ("begin", "part", "answer"),
    [
        (b"GET ", b"/", b""),
        (HEAD, b"a: b\r\n", b""),
        (b"GET / HTTP/1.1\r\n\r\n" + HEAD, b"a: b\r\n", b"<unread>"),
        (UNREAD, b"x", b"<unread>"),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n", b"<unread>"),
        (b"POST /read HTTP/1.1\r\ncontent-length: 1\r\n\r\nxGET / HTTP/1.1\r\n", b"a: b\r\n", b"<1>"),
    ],
)
def test_a_request_that_never_ends_is_given_up(
    begin: bytes, part: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with connected() as (reader, writer):
            begun = asyncio.get_running_loop().time()
            sending = asyncio.create_task(drip(writer, [begin, *[part] * 1000]))
            content = await received(reader)
            assert content.endswith(answer)
            assert content.count(b"HTTP/1.1 200 ") == (answer != b"")
            assert UNFINISHED_SECONDS * 0.9 < asyncio.get_running_loop().time() - begun < 4 * UNFINISHED_SECONDS
            sending.cancel()

    in_loop(monkeypatch, test)


def test_who_is_slow_but_comes_to_an_end_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with connected() as (reader, writer):
            # The application waits for this body, for as long as it likes.
            await drip(writer, [b"POST /read HTTP/1.1\r\ncontent-length: 20\r\n\r\n", *[b"x"] * 20])
            # And for this one nobody waits, but it comes in time.
            await drip(writer, [UNREAD, *[b"x" * 250] * 4])
            await asyncio.sleep(2 * UNFINISHED_SECONDS)
            writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            content = await received(reader)
            assert content.count(b"HTTP/1.1 200 OK") == 3
            assert content.count(b"<20>") == 1

    in_loop(monkeypatch, test)


def test_who_says_nothing_is_as_idle_as_who_says_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with connected(keep_alive_seconds=0) as (reader, _):
            assert await received(reader) == b""

    in_loop(monkeypatch, test)


HALF = b"a" * (MAX_HEAD_BYTES // 2 + 1)


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([HEAD, b"a: ", HALF, HALF], b"400"),
        ([b"GET /", HALF, HALF], b"400"),
        ([HEAD, *[b"a: b\r\n" * 2000] * 6], b"400"),
        ([HEAD, b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na: ", HALF, HALF], b"400"),
        ([HEAD, b"transfer-encoding: chunked\r\n\r\n1;a=", HALF, HALF], b"400"),
        ([HEAD, b"a: ", HALF, b"\r\n\r\n"], b"200"),
        ([HEAD, b"content-length: 99999\r\n\r\n", HALF, HALF, HALF, b"a" * 1692], b"200"),
    ],
)
def test_heads_and_trailers_are_bounded_and_bodies_are_not(
    parts: list[bytes], status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with connected() as (reader, writer):
            await drip(writer, parts, pause_seconds=0.001)
            content = await (received(reader) if status == b"400" else reader.readuntil(b">"))
            assert content.split()[1] == status
            assert reader.at_eof() == (status == b"400")

    in_loop(monkeypatch, test)


def test_requests_ahead_of_their_turn_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        request = b"GET / HTTP/1.1\r\n\r\n"
        async with connected() as (reader, writer):
            writer.write(request * (MAX_PIPELINED_REQUESTS + 1))
            content = await received(reader, seconds=UNFINISHED_SECONDS)
            assert content.count(b"HTTP/1.1 200 OK") == MAX_PIPELINED_REQUESTS + 1
            writer.write(request * (MAX_PIPELINED_REQUESTS + 2))
            content = await received(reader)
            assert content.startswith(b"HTTP/1.1 400 ")

    in_loop(monkeypatch, test)


def test_who_leaves_with_requests_ahead_of_their_turn_is_noticed() -> None:
    gone = asyncio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, send
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    async def test() -> None:
        async with connected(application=wait) as (_, writer):
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 3)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.transport.abort()
            await gone.wait()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_SECONDS))


if hasattr(socket, "TCP_USER_TIMEOUT"):  # elsewhere the system does not give up by itself

    def test_who_does_not_read_the_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "UNREAD_ANSWER_SECONDS", 1)
        lost = asyncio.Event()

        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(bytes(30_000_000))
            with suppress(TimeoutError, ConnectionError):
                await writer.drain()
            lost.set()

        async def test() -> None:
            [listener] = listen(Settings(host="127.0.0.1", port=0))
            async with await asyncio.start_server(answer, sock=listener):
                with socket.create_connection(listener.getsockname()):
                    await lost.wait()

        in_loop(monkeypatch, test)


def no_posts(scope: Scope) -> Response | None:
    return PlainTextResponse("<no>", status_code=429) if scope["method"] == "POST" else None


CLOSING = b"connection: close\r\n"
POST = b"POST / HTTP/1.1\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\n" + CLOSING + b"\r\n"


@pytest.mark.parametrize(
    ("requests", "answers"),
    [
        (b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc" + LAST, [b"<no>", b"<unread>"]),
        (
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" * 3 + LAST,
            [*[b"<no>"] * 3, b"<unread>"],
        ),
        # Behind one that the application still works on.
        (b"GET / HTTP/1.1\r\n\r\n" + POST * 60 + LAST, [b"<unread>", *[b"<no>"] * 60, b"<unread>"]),
        (b"POST / HTTP/1.1\r\n" + CLOSING + b"\r\n", [b"<no>"]),
        (b"POST / HTTP/1.0\r\n\r\n", [b"<no>"]),
        # Closed in answer to the first.
        (b"POST / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n" * 2, [b"<no>"]),
        (b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\nx" + LAST, [b"<no>", b"<unread>"]),
    ],
)
def test_what_is_refused_gets_a_whole_answer_in_its_turn(
    requests: bytes, answers: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Scope] = []

    def refuse(scope: Scope) -> Response | None:
        asked.append(scope)
        return no_posts(scope)

    async def test() -> None:
        async with connected(refuse=refuse) as (reader, writer):
            writer.write(requests)
            content = await received(reader)
            bodies = [part.partition(b"\r\n\r\n")[2] for part in content.split(b"HTTP/1.1 ")[1:]]
            assert bodies == answers
            assert content.count(b"HTTP/1.1 429 Too Many Requests\r\ndate: ") == answers.count(b"<no>")
            assert content.count(CLOSING) == 1
            assert len(asked) == len(answers)

    in_loop(monkeypatch, test)


def test_the_rest_of_a_refused_body_is_taken_before_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with connected(refuse=no_posts) as (reader, writer):
            writer.write(UNREAD)
            assert (await reader.readuntil(b"<no>")).startswith(b"HTTP/1.1 429 ")
            writer.write(b"x" * 1000 + LAST)
            assert (await received(reader)).endswith(b"<unread>")

    in_loop(monkeypatch, test)


def test_who_sends_all_before_reading_gets_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with connected(refuse=no_posts) as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\n" + CLOSING + b"content-length: 1000000\r\n\r\n")
            await reader.readuntil(b"<no>")
            writer.write(bytes(999_999))
            await writer.drain()
            await asyncio.sleep(0.05)
            assert not reader.at_eof()
            writer.write(b"x")
            assert await reader.read() == b""

    in_loop(monkeypatch, test)


def test_an_empty_line_is_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with connected(keep_alive_seconds=1) as (reader, writer):
            writer.write(b"\r\n")
            assert await received(reader) == b""

    in_loop(monkeypatch, test)


def test_a_connection_is_idle_after_the_rest_of_a_refused_body(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with connected(refuse=no_posts, keep_alive_seconds=1) as (reader, writer):
            writer.write(UNREAD)
            await reader.readuntil(b"<no>")
            writer.write(b"x" * 1000)
            assert await received(reader) == b""

    in_loop(monkeypatch, test)


def test_others_have_their_turn_among_many_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with connected(refuse=no_posts) as (reader, writer):
            writer.write(POST * (3 * MAX_PIPELINED_REQUESTS))
            content = await received(reader)
            # Then one that is answered by the application, so many that wait for it, and one too many.
            assert content.startswith(b"HTTP/1.1 429 ")
            assert content.count(b"HTTP/1.1 429 ") == MAX_PIPELINED_REQUESTS
            assert content.count(b"HTTP/1.1 400 ") == 1

    in_loop(monkeypatch, test)


def test_who_does_not_read_refusals_is_not_written_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    long = PlainTextResponse(bytes(20_000_000), status_code=429)
    given = 0

    def refuse(_: Scope) -> Response:
        nonlocal given
        given += 1
        return long

    async def test() -> None:
        async with connected(refuse=refuse) as (_, writer):
            for _ in range(30):
                writer.write(POST)
                await asyncio.sleep(0.001)
            # What the buffers of the two sides take, and no more.
            assert 0 < given < 10

    in_loop(monkeypatch, test)
