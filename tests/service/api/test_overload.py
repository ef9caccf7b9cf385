"""What cannot be taken on is refused before anything else is looked at, and only what is for the model."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.guards import GuardMiddleware, Guards
from service.api.overload import OverloadGuard
from service.api.request_scope import attach_record
from service.api.task_runner import ModelServer
from service.errors import Overloaded, ServiceError, Unhealthy
from service.observability.metrics import Metrics
from service.observability.request_record import RequestRecord

TIMEOUT_SECONDS = 7.0


class FullModel:
    """Has no room; notes for whom it was asked, and until when."""

    def __init__(self, error: ServiceError | None) -> None:
        self.error = error
        self.asked: list[tuple[str, float]] = []

    def check_admission(self, *, client: str, deadline: float | None) -> None:
        assert deadline is not None
        self.asked.append((client, deadline))
        if self.error is not None:
            raise self.error


def client_of(model: FullModel, metrics: Metrics) -> TestClient:
    async def answer(_: Any) -> PlainTextResponse:
        return PlainTextResponse("from the route")

    routes = [Route("/embed", answer, methods=["POST"]), Route("/", answer, methods=["GET", "POST"])]
    guard = OverloadGuard(routes, model=cast(ModelServer, model), timeout_seconds=TIMEOUT_SECONDS)
    inner = GuardMiddleware(
        Starlette(routes=[*routes, Route("/other", answer, methods=["POST"])]), guards=Guards([guard], metrics=metrics)
    )

    async def with_record(scope: Scope, receive: Receive, send: Send) -> None:
        record = RequestRecord(
            method=scope["method"],
            request_id="1",
            client="somebody",
            started=0.0,
            route=scope["path"],
            traceparent="",
            tracestate="",
        )
        attach_record(scope, record)
        await inner(scope, receive, send)

    app: ASGIApp = with_record
    return TestClient(app)


@pytest.mark.parametrize(
    ("error", "status"), [(Overloaded("the queue is full", retry_after_seconds=3), 429), (Unhealthy("draining"), 503)]
)
def test_the_model_says_no(error: ServiceError, status: int) -> None:
    model, metrics = FullModel(error), Metrics()
    before = time.monotonic()
    response = client_of(model, metrics).post("/embed", content=b"not even JSON")
    assert response.status_code == status
    assert response.json()["error"] == str(error)
    assert int(response.headers["retry-after"]) > 0
    [(client, deadline)] = model.asked
    assert client == "somebody"
    assert before + TIMEOUT_SECONDS <= deadline <= time.monotonic() + TIMEOUT_SECONDS
    name = {429: "overloaded", 503: "unhealthy"}[status]
    assert f'te_request_failure{{err="{name}"}} 1.0' in metrics.render()[0].decode()


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("POST", "/other")])
def test_what_is_not_for_the_model_is_let_through(method: str, path: str) -> None:
    model = FullModel(Overloaded("the queue is full", retry_after_seconds=3))
    assert client_of(model, Metrics()).request(method, path).text == "from the route"
    assert model.asked == []


def test_where_there_is_room_the_route_answers() -> None:
    model = FullModel(None)
    assert client_of(model, Metrics()).post("/embed").text == "from the route"
    assert len(model.asked) == 1
