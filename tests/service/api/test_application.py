"""The short way to the model's routes answers as the long one, and the long one is there for all else."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import Depends
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from service.app import create_app
from service.settings import Settings
from tests.service.fake_engine import FakeEngine
from tests.service.serving import wait_until

BODY = {"inputs": "a"}


def answers(calls: list[tuple[str, str, dict[str, Any]]], *, with_router: bool = True) -> list[Any]:
    """Status, body and some headers of the answers of a new application."""
    app = create_app(Settings.model_validate({}), FakeEngine())
    asked: list[str] = []
    whole = app.router.app

    async def router(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["type"])
        await whole(scope, receive, send)

    app.router.middleware_stack = router
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        asked.clear()
        got = [client.request(method, path, **named) for method, path, named in calls]
    assert bool(asked) == with_router
    return [(each.status_code, each.json(), "x-request-id" in each.headers, each.headers.get("allow")) for each in got]


def test_what_is_for_the_model_does_not_pass_the_router() -> None:
    calls = [("POST", path, {"json": BODY}) for path in ("/embed", "/", "/embed_all", "/tokenize")]
    calls.append(("POST", "/v1/embeddings", {"json": {"model": "any", "input": "a"}}))
    assert [status for status, *_ in answers(calls, with_router=False)] == [200] * 5


def test_its_errors_are_answered_alike() -> None:
    faults: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/embed", {"json": {}}),
        ("POST", "/embed", {"json": {"inputs": ""}}),
        ("POST", "/embed", {"content": b"a", "headers": {"content-type": "text/plain"}}),
        ("POST", "/v1/embeddings", {"content": b"a", "headers": {"content-type": "text/plain"}}),
    ]
    found = answers(faults, with_router=False)
    assert [status for status, *_ in found] == [422, 400, 415, 415]
    assert [body.get("error_type") for _, body, *_ in found[:3]] == ["Validation", "Empty", "UnsupportedMediaType"]
    assert found[3][1]["error"]["type"] == "invalid_request_error"
    assert all(has_id for _, _, has_id, _ in found)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/embed", 405), ("GET", "/info", 200), ("POST", "/info", 405), ("POST", "/embed/", 404)],
)
def test_all_else_passes_it(method: str, path: str, status: int) -> None:
    ((found, _, has_id, allowed),) = answers([(method, path, {})])
    assert (found, has_id) == (status, True)
    assert (allowed is not None) == (status == 405)


def test_a_route_of_the_framework_s_own_kind_may_be_added() -> None:
    app = create_app(Settings.model_validate({}), FakeEngine())

    @app.get("/twice")
    async def twice(number: int, factor: int = Depends(lambda: 2)) -> int:
        return number * factor

    with TestClient(app) as client:
        assert client.get("/twice", params={"number": 4}).json() == 8


def test_a_fault_of_a_route_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(Settings.model_validate({}), FakeEngine())

    @app.get("/fails")
    async def fails() -> None:
        raise ZeroDivisionError

    with TestClient(app) as client:
        answer = client.get("/fails")
    assert (answer.status_code, answer.json()["error_type"]) == (500, "Backend")
    assert len([record for record in caplog.records if record.exc_info]) == 1
