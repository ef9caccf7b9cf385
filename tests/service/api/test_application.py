"""The short way to the model's routes answers as the long one, and the long one is there for all else."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from fastapi import Depends
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from service.api import request_body, task_runner
from service.api.application import Application
from service.app import create_app
from service.settings import Settings
from tests.service.fake_engine import FakeEngine
from tests.service.serving import serving, wait_until

Call = tuple[str, str, dict[str, Any]]

TEXT = {"content": b"a", "headers": {"content-type": "text/plain"}}
# Method, path, the rest; and whether it is for the model.
CALLS: list[tuple[Call, bool]] = [
    *((("POST", path, {"json": {"inputs": "a"}}), True) for path in ("/embed", "/", "/embed_all", "/tokenize")),
    (("POST", "/v1/embeddings", {"json": {"model": "any", "input": "a"}}), True),
    (("POST", "/embed", {"json": {"inputs": "a"}, "headers": {"x-request-id": "mine"}}), True),
    (("POST", "/embed", {"json": {}}), True),
    (("POST", "/embed", {"json": {"inputs": ""}}), True),
    (("POST", "/embed", {"content": b"["}), True),
    (("POST", "/embed", {"json": {"inputs": "a" * 3_000_000}}), True),
    (("POST", "/embed", {"json": {"inputs": "a"}, "headers": {"x-request-timeout-ms": ""}}), True),
    (("POST", "/embed", TEXT), True),
    (("POST", "/v1/embeddings", TEXT), True),
    (("GET", "/embed", {}), False),
    (("OPTIONS", "/embed", {}), False),
    (("GET", "/", {}), False),
    (("HEAD", "/", {}), False),
    (("GET", "/health/live", {}), False),  # not /v1/models, which tells the time
    (("POST", "/v1/models", {}), False),
    (("POST", "/info", {}), False),
    (("POST", "/embed/", {}), False),
]


def answer_of(call: Call, *, short: bool) -> tuple[Any, bool]:
    """The answer of a new application, without times and made-up ids; and whether the call has passed its router."""
    method, path, named = call
    app = create_app(Settings.model_validate({}), FakeEngine())
    assert isinstance(app, Application)
    if not short:
        app._model_routes = []
    asked: list[str] = []
    whole = app.router.app

    async def router(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["type"])
        await whole(scope, receive, send)

    app.router.middleware_stack = router
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        asked.clear()
        answer = client.request(method, path, **named)
        passed = bool(asked)
    assert len(answer.headers.get_list("x-request-id")) == 1
    headers = {name: value for name, value in answer.headers.items() if not name.endswith("-time")}
    if "x-request-id" not in named.get("headers", {}):
        del headers["x-request-id"]
    return (answer.status_code, answer.content, headers), passed


@pytest.mark.parametrize(("call", "is_for_model"), CALLS)
def test_both_ways_give_the_same_answer(call: Call, is_for_model: bool) -> None:
    by_short, passed = answer_of(call, short=True)
    assert passed != is_for_model
    by_long, passed = answer_of(call, short=False)
    assert passed
    assert by_short == by_long


def test_a_route_of_the_framework_s_own_kind_may_be_added() -> None:
    app = create_app(Settings.model_validate({}), FakeEngine())

    @app.get("/twice")
    async def twice(number: int, factor: int = Depends(lambda: 2)) -> int:
        return number * factor

    with TestClient(app) as client:
        assert client.get("/twice", params={"number": 4}).json() == 8


@pytest.mark.parametrize("path", ["/fails", "/embed"])
def test_a_fault_of_ours_is_told_and_counted_once(
    path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(task_runner, "check_content_type", fail)
    app = create_app(Settings.model_validate({}), FakeEngine())
    app.post("/fails")(lambda: 1 / 0)
    with TestClient(app) as client:
        answer = client.post(path)
        metrics = client.get("/metrics").text
    assert (answer.status_code, answer.json()["error_type"]) == (500, "Backend")
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert 'te_request_failure{err="internal"} 1.0' in metrics


def test_a_refused_request_is_freed_without_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[weakref.ref[Any]] = []
    parse = request_body.parse_body

    def parse_body(raw: bytes, schema: Any) -> Any:
        body = parse(raw, schema)
        bodies.append(weakref.ref(body))
        return body

    monkeypatch.setattr(task_runner, "parse_body", parse_body)
    with serving() as client:
        gc.collect()
        gc.disable()
        try:
            assert client.post("/embed", json={"inputs": ""}).status_code == 400
            wait_until(lambda: bodies[0]() is None)
        finally:
            gc.enable()
