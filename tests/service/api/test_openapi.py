from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Route

from service.api.error_responses import ERROR_KINDS
from service.api.openai_schemas import OpenAIErrorAnswer
from service.api.openapi_operations import OPERATIONS
from service.app import create_app
from service.settings import Settings
from tests.service.fake_engine import FakeEngine
from tests.service.serving import serving

NOTHING = "(nothing there)"
UNDOCUMENTED = {("GET", "/"), ("GET", "/docs"), ("GET", "/openapi.json")}
ROUTES = {operation.path: operation for operation in OPERATIONS}
TASK_ROUTES = tuple(path for path, operation in ROUTES.items() if operation.request is not None)
NATIVE_ROUTES = tuple(path for path in TASK_ROUTES if not path.startswith("/v1/"))
NEED_NO_HEAD = {"/embed_all", "/similarity", "/tokenize", "/decode"}


@pytest.fixture
def document() -> dict[str, Any]:
    with serving() as client:
        content: dict[str, Any] = client.get("/openapi.json").json()
    return content


def test_every_route_is_documented(document: dict[str, Any]) -> None:
    app = create_app(Settings(), FakeEngine())
    served = {
        (method, route.path.replace(":path", ""))
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    documented = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert documented == served - UNDOCUMENTED


@pytest.mark.parametrize("path", TASK_ROUTES)
def test_examples_are_answered_as_documented(document: dict[str, Any], path: str) -> None:
    described = document["paths"][path]["post"]
    examples = described["requestBody"]["content"]["application/json"]["examples"]
    assert len(examples) >= 2
    changes: dict[str, dict[str, Any]] = {"/fill-mask": {"inputs": "[MASK]"}, "/decode": {"ids": [1, 2]}}
    with serving() as client:
        for example in examples.values():
            answer = client.post(path, json=example["value"] | changes.get(path, {}))
            assert answer.status_code == 200
            assert described["responses"]["200"]["headers"].keys() <= answer.headers.keys()


@pytest.mark.parametrize("path", NATIVE_ROUTES)
def test_every_failure_is_documented_with_its_type(document: dict[str, Any], path: str) -> None:
    responses = document["paths"][path]["post"]["responses"]
    types = {
        int(status): response["content"]["application/json"]["example"]["error_type"]
        for status, response in responses.items()
        if status != "200"
    }
    expected = {kind.status: kind.error_type for kind in ERROR_KINDS.values()} | {415: "UnsupportedMediaType"}
    del expected[401]  # there is no key
    if path in NEED_NO_HEAD:
        del expected[501]
    assert types == expected
    examples = [response["content"]["application/json"]["example"] for response in list(responses.values())[1:]]
    assert len({example["error"] for example in examples}) == len(examples)
    assert {status for status, response in responses.items() if "retry-after" in response.get("headers", {})} == {
        "429",
        "503",
    }


def test_failures_of_openai_routes_have_its_statuses_and_bodies(document: dict[str, Any]) -> None:
    failures = {
        (path, status): response["content"]["application/json"]["example"]["error"]
        for path, item in document["paths"].items()
        if path.startswith("/v1/")
        for described in item.values()
        for status, response in described["responses"].items()
        if status != "200"
    }
    embeddings = {status for path, status in failures if path == "/v1/embeddings"}
    assert embeddings == {"400", "413", "415", "429", "500", "501", "503", "504"}
    assert {status for path, status in failures if path == "/v1/models/{model_id}"} == {"404", "503"}
    assert failures["/v1/embeddings", "400"]["param"] == "input[1]"
    assert failures["/v1/embeddings", "429"]["type"] == "rate_limit_error"
    assert failures["/v1/models/{model_id}", "404"]["code"] == "model_not_found"
    for failure in failures.values():
        assert OpenAIErrorAnswer.model_validate({"error": failure}).model_dump() == {"error": failure}
    described = document["paths"]["/v1/embeddings"]["post"]["responses"]["400"]["description"]
    assert "empty" in described
    assert "JSON" in described


@pytest.mark.parametrize("path", TASK_ROUTES)
def test_every_example_has_an_answer_of_the_documented_shape(document: dict[str, Any], path: str) -> None:
    described = document["paths"][path]["post"]
    requests = described["requestBody"]["content"]["application/json"]["examples"]
    answers = described["responses"]["200"]["content"]["application/json"]["examples"]
    assert {name: example["summary"] for name, example in requests.items()} == {
        name: example["summary"] for name, example in answers.items()
    }
    shape = ROUTES[path].answer
    assert shape is not None
    for example in answers.values():
        # Round-tripped, so that nothing in it is unknown to the shape.
        parsed = shape.model_validate_json(json.dumps(example["value"]))
        assert parsed.model_dump(mode="json", exclude_unset=True) == example["value"]


def test_what_needs_no_request_has_a_sample_answer(document: dict[str, Any]) -> None:
    with serving() as client:
        for path in ("/health", "/health/ready", "/health/live", "/info"):
            content = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]
            assert content["example"].keys() == client.get(path).json().keys()
        sample = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]["text/plain"]["example"]
        served = {line.split()[0] for line in client.get("/metrics").text.splitlines()}
    assert {line.split()[0] for line in sample.splitlines()} <= served
    schema = document["components"]["schemas"]["InfoAnswer"]
    assert document["paths"]["/info"]["get"]["responses"]["200"]["content"]["application/json"]["example"].keys() == (
        schema["properties"].keys()
    )


def test_links_lead_from_an_answer_to_a_request(document: dict[str, Any]) -> None:
    links = 0
    for item in document["paths"].values():
        for described in item.values():
            answered = described["responses"]["200"]
            content = next(iter(answered["content"].values()))
            answers = [example["value"] for example in content.get("examples", {}).values()] or [content["example"]]
            for link in answered.get("links", {}).values():
                _, _, path, method = (part.replace("~1", "/") for part in link["operationRef"].split("/"))
                target = document["paths"][path][method]
                given = link.get("parameters", {}).keys()
                assert given == {parameter["name"] for parameter in target["parameters"] if parameter.get("required")}
                filled = [filled_in(link.get("requestBody", link.get("parameters")), answer) for answer in answers]
                assert any(NOTHING not in str(one) for one in filled)
                request = ROUTES[path].request
                if request is not None:
                    request.model_validate(next(one for one in filled if NOTHING not in str(one)))
                links += 1
    assert links == 4


def filled_in(template: Any, answer: Any) -> Any:
    """A link's template with what an answer holds at its pointers (RFC 6901)."""
    if isinstance(template, dict):
        return {name: filled_in(value, answer) for name, value in template.items()}
    if isinstance(template, list):
        return [filled_in(value, answer) for value in template]
    if not template.startswith("$response.body#/"):
        return template
    value = answer
    for part in template.removeprefix("$response.body#/").split("/"):
        try:
            value = value[int(part) if isinstance(value, list) else part]
        except (KeyError, IndexError, TypeError, ValueError):
            return NOTHING
    return value


def test_routes_are_grouped_and_everything_is_described(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    used = [described for item in document["paths"].values() for described in item.values()]
    assert {tag for described in used for tag in described["tags"]} == tags
    assert all("\n" not in described["summary"] for described in used)
    assert "x-truncated" in document["info"]["description"]
    undescribed = {
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, described in schema.get("properties", {}).items()
        if not described.get("description")
    }
    assert undescribed == set()
    assert "ignored" in document["components"]["schemas"]["EmbedRequest"]["description"]


def test_an_api_key_is_documented_where_there_is_one(document: dict[str, Any]) -> None:
    assert "security" not in document
    with serving(api_key="sesame", root_path="/bert") as client:
        secured = client.get("/bert/openapi.json").json()
    assert secured["security"] == [{"api_key": []}]
    assert secured["components"]["securitySchemes"] == {"api_key": {"type": "http", "scheme": "bearer"}}
    assert secured["servers"] == [{"url": "/bert"}]
    assert {"401", "503"} <= secured["paths"]["/info"]["get"]["responses"].keys()
    assert "401" in secured["paths"]["/embed"]["post"]["responses"]
    open_paths = {
        path
        for path, item in secured["paths"].items()
        for described in item.values()
        if described.get("security") == []
    }
    assert open_paths == {"/health", "/health/ready", "/health/live", "/metrics"}


def test_every_reference_is_defined(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    names = {reference.removeprefix("#/components/schemas/") for reference in _references(document)}
    assert names == schemas.keys()


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
