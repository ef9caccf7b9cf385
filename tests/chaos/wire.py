"""Requests as bytes, sent as a client likes, and the answers to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

RECEIVE_BUFFER_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def embed_request(inputs: str | Sequence[str], **headers: str) -> bytes:
    """A request to `/embed`, whole; underscores of header names become hyphens."""
    body = json.dumps({"inputs": inputs}).encode()
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return head(len(body), *lines) + body


def head(length: int, *lines: str) -> bytes:
    """The head of a request to `/embed` with a body of so many bytes."""
    fixed = f"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    return "".join([fixed, *lines, "\r\n"]).encode()


class Wire:
    """A connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def answer(self) -> Answer:
        """The next answer.

        Raises:
            ConnectionError: it did not come whole.
        """
        try:
            status_line, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self._reader.readexactly(int(headers["content-length"]))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError(f"the connection was closed after {len(error.partial)} bytes of an answer") from None
        return Answer(status=int(status_line.split()[1]), headers=headers, body=body)

    async def read_slowly(self, *, pause_seconds: float) -> bytes:
        """Everything until the connection is closed."""
        content = b""
        while part := await self._reader.read(RECEIVE_BUFFER_BYTES):
            content += part
            await asyncio.sleep(pause_seconds)
        return content

    async def is_closed(self, *, within_seconds: float) -> bool:
        """Whether the other end closes the connection, whatever it says before."""
        with contextlib.suppress(ConnectionError):
            try:
                await asyncio.wait_for(self._reader.read(), within_seconds)
            except TimeoutError:
                return False
        return True

    def reset(self) -> None:
        """Vanish without a farewell."""
        if not self._writer.is_closing():
            connection = self._writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


@contextlib.asynccontextmanager
async def connected(port: int, *, narrow: bool = False) -> AsyncIterator[Wire]:
    """A connection to the service; a narrow one takes in little that its client has not read."""
    connection = socket.socket()
    connection.setblocking(False)
    if narrow:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    try:
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    except BaseException:
        connection.close()
        raise
    reader, writer = await asyncio.open_connection(sock=connection, limit=RECEIVE_BUFFER_BYTES if narrow else 2**16)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
