"""The door answers as the application would, while that refuses; everything else it lets in."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message, Scope

from service.app import create_app
from service.errors import Overloaded, ServiceError, Unhealthy
from service.observability.metrics import Metrics
from service.settings import Settings
from tests.service.fake_engine import FakeEngine

PROXY = "192.0.2.1"
FULL = Overloaded("the queue is full", retry_after_seconds=3)
KEYS = {"api_key": "sesame-key"}


def app_without_room(
    monkeypatch: pytest.MonkeyPatch, error: Exception = FULL, *, metrics: Metrics | None = None, **settings: object
) -> FastAPI:
    app = create_app(Settings.model_validate(settings), FakeEngine(), metrics=metrics)
    answer_to_check(monkeypatch, app, error)
    return app


def answer_to_check(monkeypatch: pytest.MonkeyPatch, app: FastAPI, error: Exception | None) -> None:
    def check_admission(**_: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(app.state.lifecycle, "check_admission", check_admission)


def scope_of(path: str, *, method: str = "POST", **headers: str) -> Scope:
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "client": (PROXY, 4321),
        "server": ("test", 80),
        "state": {},
    }


def by_application(app: FastAPI, scope: Scope) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        messages.append(message)

    async def receive() -> Message:
        raise AssertionError("a refusal needs no body")

    asyncio.run(app(scope, receive, send))
    start, body = messages
    return start["status"], start["headers"], body["body"]


def logged(caplog: pytest.LogCaptureFixture) -> list[Any]:
    names = ("method", "path", "status", "request_id", "client")
    return [[vars(record)[name] for name in names] for record in caplog.records if record.message == "request"]


@pytest.mark.parametrize(
    ("path", "error", "settings", "headers", "status", "client"),
    [
        ("/embed", FULL, {}, {}, 429, PROXY),
        ("/fill-mask", Unhealthy("the service is shutting down"), {}, {}, 503, PROXY),
        ("/v1/embeddings", FULL, {}, {}, 429, PROXY),
        ("/embed", FULL, {"trusted_proxies": PROXY}, {"x_forwarded_for": "198.51.100.9"}, 429, "198.51.100.9"),
        ("/embed", FULL, {"trusted_proxies": "192.0.2.2"}, {"x_forwarded_for": "198.51.100.9"}, 429, PROXY),
        ("/embed", FULL, {"trusted_proxies": PROXY}, {"x_forwarded_for": "<script>"}, 429, "unknown"),
        ("/embed", FULL, KEYS, {"authorization": "Bearer sesame-key"}, 429, PROXY),
        ("/embed", FULL, KEYS, {"authorization": "Bearer another-key"}, 401, PROXY),
        ("/v1/embeddings", FULL, KEYS, {}, 401, PROXY),
    ],
)
def test_the_same_answer_and_the_same_line_in_the_log(
    path: str,
    error: ServiceError,
    settings: dict[str, object],
    headers: dict[str, str],
    status: int,
    client: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    app = app_without_room(monkeypatch, error, metrics=metrics, **settings)
    # The first that is refused has the right key.
    by_application(app, scope_of("/embed", authorization="Bearer sesame-key"))
    caplog.clear()
    scope = scope_of(path, x_request_id="abc", **headers)
    answer = by_application(app, {**scope})
    refusal = app.state.refuse({**scope})
    assert (refusal.status_code, refusal.raw_headers, refusal.body) == answer
    assert refusal.status_code == status
    assert logged(caplog) == [["POST", path, status, "abc", client]] * 2
    name = {429: "overloaded", 503: "unhealthy", 401: "unauthorized"}[status]
    counted = 2 if status == 401 else 3
    assert f'te_request_failure{{err="{name}"}} {counted:.1f}' in metrics.render()[0].decode()


def test_each_has_an_id_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_without_room(monkeypatch)
    by_application(app, scope_of("/embed"))
    assert len({app.state.refuse(scope_of("/embed")).headers["x-request-id"] for _ in range(3)}) == 3


def test_it_is_shut_from_the_first_refusal_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_without_room(monkeypatch)
    assert app.state.refuse(scope_of("/embed")) is None
    by_application(app, scope_of("/embed"))
    assert app.state.refuse(scope_of("/embed")) is not None
    answer_to_check(monkeypatch, app, None)
    assert app.state.refuse(scope_of("/embed")) is None
    answer_to_check(monkeypatch, app, FULL)
    assert app.state.refuse(scope_of("/embed")) is None


@pytest.mark.parametrize(("method", "path"), [("GET", "/info"), ("HEAD", "/embed"), ("POST", "/no-such-route")])
def test_what_is_not_for_the_model_comes_in(method: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_without_room(monkeypatch)
    by_application(app, scope_of("/embed"))
    assert app.state.refuse(scope_of(path, method=method)) is None
    assert app.state.refuse(scope_of("/embed")) is not None


def test_a_fault_of_ours_is_left_to_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_without_room(monkeypatch)
    by_application(app, scope_of("/embed"))
    answer_to_check(monkeypatch, app, ZeroDivisionError())
    assert app.state.refuse(scope_of("/embed")) is None
    assert by_application(app, scope_of("/embed"))[0] == 500
    answer_to_check(monkeypatch, app, FULL)
    assert app.state.refuse({**scope_of("/embed"), "client": ()}) is None


def test_pages_are_answered_by_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = "https://example.org"
    app = app_without_room(monkeypatch, cors_allow_origin=origin)
    status, headers, _ = by_application(app, scope_of("/embed", origin=origin))
    assert status == 429
    assert (b"access-control-allow-origin", origin.encode()) in headers
    assert app.state.refuse(scope_of("/embed", origin=origin)) is None
    assert app.state.refuse(scope_of("/embed")).status_code == 429
