from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from service.api.error_responses import error_response
from service.errors import (
    BackendFailure,
    DeadlinePassed,
    EmptyInput,
    ForeignTokenIds,
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
    response = error_response(error, scope={"type": "http", "path": "/embed"})
    assert response.status_code == status
    assert json.loads(bytes(response.body)) == {"error": "x", "error_type": error_type}
    special = dict(response.headers)
    del special["content-length"]
    assert special.pop("content-type") == "application/json"
    assert special == dict([header] if header else [])


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (EmptyInput("x"), 400, "invalid_request_error", None),
        (Unauthorized("x"), 401, "authentication_error", "invalid_api_key"),
        (PayloadTooLarge("x"), 413, "invalid_request_error", None),
        (InvalidInput("x"), 400, "invalid_request_error", None),
        (Overloaded("x", retry_after_seconds=6.1), 429, "rate_limit_error", "rate_limit_exceeded"),
        (BackendFailure("x"), 500, "server_error", None),
        (HeadMissing("x"), 501, "server_error", None),
        (Unhealthy("x"), 503, "server_error", None),
        (DeadlinePassed("x"), 504, "server_error", None),
    ],
)
@pytest.mark.parametrize("root_path", ["", "/bert"])
def test_below_v1_an_error_has_the_form_of_openai_and_the_same_headers(
    error: ServiceError, status: int, kind: str, code: str | None, root_path: str
) -> None:
    native, openai = (
        error_response(error, scope={"type": "http", "root_path": root_path, "path": root_path + path})
        for path in ("/embed", "/v1/embeddings")
    )
    assert openai.status_code == status
    assert json.loads(bytes(openai.body)) == {"error": {"message": "x", "type": kind, "param": None, "code": code}}
    assert {**openai.headers, "content-length": "0"} == {**native.headers, "content-length": "0"}


@pytest.mark.parametrize(
    ("error", "param", "message"),
    [
        (InvalidInput("is bad", field="inputs"), "input", "input: is bad"),
        (EmptyInput("is bad", field="inputs[3]"), "input[3]", "input[3]: is bad"),
        (InvalidInput("is bad", field="dimensions"), "dimensions", "dimensions: is bad"),
        (
            ForeignTokenIds("are bad", field="inputs[0]"),
            "input[0]",
            "input[0]: are bad; LangChain's OpenAIEmbeddings sends text with check_embedding_ctx_length=False",
        ),
    ],
)
def test_below_v1_an_error_names_the_field_as_openai_does(error: ServiceError, param: str, message: str) -> None:
    response = error_response(error, scope={"type": "http", "path": "/v1/embeddings"})
    told = json.loads(bytes(response.body))["error"]
    assert (told["param"], told["message"]) == (param, message)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/nowhere", 404, "no such route; /docs lists all"),
        ("POST", "/v1/embeddings/", 404, "no such route; /docs lists all"),
        ("GET", "/v1/embeddings", 405, "the route does not have this method; allowed: POST"),
        ("POST", "/v1/embeddings", 415, "the content type must be application/json"),
    ],
)
def test_below_v1_what_routing_refuses_has_the_form_of_openai(
    method: str, path: str, status: int, message: str
) -> None:
    with serving() as client:
        answer = client.request(method, path)
    assert answer.status_code == status
    told: dict[str, Any] = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    assert answer.json() == {"error": told}
    assert ("allow" in answer.headers) == (status == 405)


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
