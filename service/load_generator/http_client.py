"""A small HTTP/1.1 client: one keep-alive connection, one request at a time.

It does what a load generator needs and no more, so that one core sends thousands of requests a second and the
measured time is the server's.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

KEPT_HEADERS = frozenset(
    (
        b"x-compute-tokens",
        b"x-total-time",
        b"x-tokenization-time",
        b"x-queue-time",
        b"x-inference-time",
        b"retry-after",
    )
)

PORTS = {"http": 80, "https": 443}


class UrlError(ValueError):
    """An address that cannot be a server's; the message says why."""


class ConnectionFailure(Exception):
    """The connection was not made, or was lost before the whole answer was there; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is. `path` is the prefix of its routes, without a slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read `http://host:8000`, `https://host/prefix`.

        Raises:
            UrlError: it is no such URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UrlError(f"{url!r}: {error}") from None
        if parts.scheme not in PORTS or not parts.hostname:
            raise UrlError(f"{url!r}: must begin with http:// or https:// and name a host")
        if parts.username is not None or parts.query or parts.fragment:
            raise UrlError("the URL: must have no user name, ? or #")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise UrlError(f"{url!r}: must be ASCII without spaces")
        return cls(
            scheme=parts.scheme, host=parts.hostname, port=port or PORTS[parts.scheme], path=parts.path.rstrip("/")
        )

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(slots=True)
class Answer:
    """An answer: status, the headers that say what it cost, by lower-case name, and the body."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)


def request_bytes(
    method: str, address: Address, route: str, *, json_bytes: bytes = b"", api_key: str | None = None
) -> bytes:
    """A whole request, as it goes over the wire."""
    lines = [f"{method} {address.path}/{route} HTTP/1.1", f"host: {address.authority}"]
    if api_key is not None:
        lines.append(f"authorization: Bearer {api_key}")
    if json_bytes:
        lines += ["content-type: application/json", f"content-length: {len(json_bytes)}"]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + json_bytes


class Connection:
    """A connection that is made when it is needed and again after it was closed."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        self._exchange: _Exchange | None = None

    async def send(self, request: bytes, *, timeout_seconds: float) -> Answer:
        """Send a request and wait for the whole answer.

        Raises:
            ConnectionFailure: no connection, or it was lost.
            TimeoutError: it took too long. The connection is given up.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                if self._exchange is None or self._exchange.closed:
                    self._exchange = await self._connect()
                return await self._exchange.send(request)
        except BaseException:
            self.close()
            raise

    async def _connect(self) -> _Exchange:
        loop = asyncio.get_running_loop()
        try:
            _, exchange = await loop.create_connection(
                lambda: _Exchange(loop), self._address.host, self._address.port, ssl=self._tls
            )
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ConnectionFailure(f"no connection: {reason}") from error
        return exchange

    def close(self) -> None:
        """Close it, if it is open."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None


class _Exchange(asyncio.Protocol):
    """An open connection. The parser calls `on_…` as parts of the answer come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer()
        self._waiting: asyncio.Future[Answer] | None = None
        self.closed = False

    async def send(self, request: bytes) -> Answer:
        assert self._transport is not None
        self._answer = Answer()
        self._waiting = self._loop.create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"not an HTTP answer: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._fail("the connection was closed before the answer" if exc is None else f"connection lost: {exc}")

    def _fail(self, reason: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionFailure(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in KEPT_HEADERS:
            self._answer.headers[name] = value

    def on_body(self, body: bytes) -> None:
        self._answer.body += body

    def on_message_complete(self) -> None:
        self._answer.status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(self._answer)
