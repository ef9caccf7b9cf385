from __future__ import annotations

import json
from dataclasses import replace

import pytest

from service.api.error_responses import error_response
from service.errors import (
    BackendFailure,
    DeadlinePassed,
    EmptyInput,
    HeadMissing,
    InvalidInput,
    Overloaded,
    PayloadTooLarge,
    RequestError,
    ServiceError,
    Unauthorized,
    Unhealthy,
)
from tests.service.fake_engine import FAKE_INFO, FakeEngine
from tests.service.serving import serving


class SpecialInput(InvalidInput):
    """A class that the table does not name."""


@pytest.mark.parametrize(
    ("error", "status", "error_type", "header"),
    [
        (EmptyInput("x"), 400, "Empty", None),
        (Unauthorized("x"), 401, "Unauthorized", ("www-authenticate", "Bearer")),
        (PayloadTooLarge("x"), 413, "PayloadTooLarge", None),
        (InvalidInput("x"), 422, "Validation", None),
        (SpecialInput("x"), 422, "Validation", None),
        (RequestError("x"), 422, "Validation", None),
        (Overloaded("x", retry_after_seconds=6.1), 429, "Overloaded", ("retry-after", "7")),
        (Overloaded("x", retry_after_seconds=0.0), 429, "Overloaded", ("retry-after", "1")),
        (Overloaded("x", retry_after_seconds=999), 429, "Overloaded", ("retry-after", "60")),
        (BackendFailure("x"), 500, "Backend", None),
        (ServiceError("x"), 500, "Backend", None),
        (HeadMissing("x"), 501, "ModelType", ("x-should-retry", "false")),
        (Unhealthy("x"), 503, "Unhealthy", ("retry-after", "5")),
        (DeadlinePassed("x"), 504, "Timeout", None),
    ],
)
def test_every_error_has_its_status_type_and_headers(
    error: ServiceError, status: int, error_type: str, header: tuple[str, str] | None
) -> None:
    response = error_response(error)
    assert response.status_code == status
    assert json.loads(bytes(response.body)) == {"error": "x", "error_type": error_type}
    special = dict(response.headers)
    del special["content-length"]
    assert special.pop("content-type") == "application/json"
    assert special == dict([header] if header else [])


@pytest.mark.parametrize(
    ("method", "path", "status", "error", "error_type"),
    [
        ("GET", "/nowhere", 404, "no such route; /docs lists all", "NotFound"),
        ("POST", "/embed/", 404, "no such route; /docs lists all", "NotFound"),
        ("GET", "/static/nothing.js", 404, "no such route; /docs lists all", "NotFound"),
        ("GET", "/embed", 405, "the route does not have this method; allowed: POST", "MethodNotAllowed"),
        ("DELETE", "/", 405, "the route does not have this method; allowed: GET, HEAD, POST", "MethodNotAllowed"),
    ],
)
def test_what_routing_refuses_has_the_same_body(
    method: str, path: str, status: int, error: str, error_type: str
) -> None:
    with serving() as client:
        answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json() == {"error": error, "error_type": error_type}
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("/next-sentence", {"inputs": ["a", "b"]}, "this checkpoint holds no nsp head"),
        ("/next-sentence", {"text": "a", "candidates": ["b"]}, "candidates[0]: this checkpoint holds no nsp head"),
        ("/fill-mask", {"inputs": ["[MASK]"]}, "inputs[0]: this checkpoint holds no mlm head"),
        ("/fill-mask", {"inputs": ["[MASK]"], "details": True}, "this checkpoint holds no mlm head"),
    ],
)
def test_a_missing_head_is_told_as_not_worth_a_retry(path: str, body: object, error: str) -> None:
    engine = FakeEngine(info=replace(FAKE_INFO, heads_missing=("mlm", "nsp")))
    with serving(engine) as client:
        answer = client.post(path, json=body)
        assert client.post("/embed", json={"inputs": "a"}).status_code == 200
    assert answer.status_code == 501
    assert answer.json() == {"error": error, "error_type": "ModelType"}
    assert answer.headers["x-should-retry"] == "false"
