"""Applications under test: over a client, behind a port, or driven message by message."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message

from service.app import create_app
from service.batching.submission import Entry, Rounds
from service.lifecycle import ModelLifecycle
from service.settings import Settings
from tests.service.fake_engine import PATIENCE_SECONDS, FakeEngine


@contextmanager
def serving(engine: FakeEngine | None = None, **settings: object) -> Iterator[TestClient]:
    """A client of a ready application."""
    values = Settings.model_validate(settings)
    app = create_app(values, engine or FakeEngine())
    with TestClient(app, raise_server_exceptions=False, root_path=values.root_path) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        yield client


@contextmanager
def listening(app: ASGIApp) -> Iterator[str]:
    """The address of an application behind a port, in a thread of this process; it may not be ready yet."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, ws="none", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)


@contextmanager
def serving_on_port(engine: FakeEngine, **settings: object) -> Iterator[str]:
    """The address of a ready application."""
    app = create_app(Settings.model_validate(settings), engine)
    with listening(app) as url:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        yield url


def wait_until(happened: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition, in a test without an event loop."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.001)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """The application on this event loop, ready."""
    async with app.router.lifespan_context(app):
        await until(lambda: app.state.lifecycle.unready_reason() is None)
        yield


async def until(happened: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not happened():
            await asyncio.sleep(0.001)


def recorded_clients(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """For each request from now on, who takes turns in the queue."""
    clients: list[str] = []
    submit_rounds = ModelLifecycle.submit_rounds

    async def recording(lifecycle: ModelLifecycle, rounds: Rounds, *, client: str, **options: Any) -> list[Entry]:
        clients.append(client)
        return await submit_rounds(lifecycle, rounds, client=client, **options)

    monkeypatch.setattr(ModelLifecycle, "submit_rounds", recording)
    return clients


@dataclass
class Exchange:
    """One request of which the test sends every part itself.

    received: how many messages the application has asked for and got.
    """

    app: FastAPI
    path: str
    messages: Sequence[Message]
    headers: Mapping[str, str]
    received: int = 0
    status: int | None = None
    body: bytes = b""

    async def run(self) -> int:
        """Send the messages, then nothing more; returns the status."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in self.headers.items()],
            "client": ("192.0.2.7", 4321),
            "server": ("test", 80),
            "state": {},
        }
        await self.app(scope, self._receive, self._send)
        assert self.status is not None
        return self.status

    async def _receive(self) -> Message:
        if self.received == len(self.messages):
            await asyncio.Event().wait()
        self.received += 1
        return self.messages[self.received - 1]

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.body += message.get("body", b"")


JSON = {"content-type": "application/json"}
DISCONNECT: Message = {"type": "http.disconnect"}


def body_part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}
