"""The OpenAPI document: what every route takes and gives, failures included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.api.answer_schemas import (
    EmbedAnswer,
    ErrorAnswer,
    FillMaskAnswer,
    HealthAnswer,
    InfoAnswer,
    NextSentenceAnswer,
)
from service.api.auth import OPEN_PATHS
from service.api.error_responses import ERROR_KINDS, ErrorKind
from service.api.schemas import EmbedRequest, FillMaskRequest, NextSentenceRequest
from service.api.task_runner import COST_HEADERS, TIMEOUT_HEADER
from service.errors import ServiceError, Unauthorized, Unhealthy

REF_TEMPLATE = "#/components/schemas/{model}"

JsonSchemaMode = Literal["validation", "serialization"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One documented route. `answer` is None for plain text."""

    path: str
    summary: str
    answer: type[BaseModel] | None
    request: type[BaseModel] | None = None
    unready: bool = False


OPERATIONS = (
    Operation(
        path="/fill-mask",
        summary="Predict what stands at each [MASK].",
        request=FillMaskRequest,
        answer=FillMaskAnswer,
    ),
    Operation(
        path="/next-sentence",
        summary="Tell whether a text follows another, or rank candidates.",
        request=NextSentenceRequest,
        answer=NextSentenceAnswer,
    ),
    Operation(path="/embed", summary="Turn texts into vectors.", request=EmbedRequest, answer=EmbedAnswer),
    Operation(path="/", summary="The same as /embed.", request=EmbedRequest, answer=EmbedAnswer),
    Operation(path="/health", summary="The same as /health/ready.", answer=HealthAnswer, unready=True),
    Operation(path="/health/ready", summary="Should requests be sent here?", answer=HealthAnswer, unready=True),
    Operation(path="/health/live", summary="Does the process answer?", answer=HealthAnswer),
    Operation(path="/info", summary="The model, the limits and the versions.", answer=InfoAnswer, unready=True),
    Operation(path="/metrics", summary="Metrics in the Prometheus text format.", answer=None),
)


def openapi_document(*, version: str, root_path: str, with_api_key: bool) -> dict[str, Any]:
    """The document, as OpenAPI 3.1."""
    paths = {operation.path: _path_item(operation, with_api_key=with_api_key) for operation in OPERATIONS}
    components: dict[str, Any] = {"schemas": _schemas()}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "bert-service", "version": version, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": components,
    }
    if with_api_key:
        components["securitySchemes"] = {"api_key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"api_key": []}]
    return document


def _schemas() -> dict[str, Any]:
    models: dict[type[BaseModel], JsonSchemaMode] = {ErrorAnswer: "serialization"}
    for operation in OPERATIONS:
        if operation.request is not None:
            models[operation.request] = "validation"
        if operation.answer is not None:
            models[operation.answer] = "serialization"
    _, schema = models_json_schema(list(models.items()), ref_template=REF_TEMPLATE)
    definitions: dict[str, Any] = schema["$defs"]
    return definitions


def _path_item(operation: Operation, *, with_api_key: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary, "responses": {"200": _answer(operation)}}
    described["responses"] |= _failures(operation, with_api_key=with_api_key)
    if operation.request is None:
        return {"get": described}
    described["parameters"] = [
        {
            "name": TIMEOUT_HEADER,
            "in": "header",
            "description": "The longest time to wait for a pass; at most the server's own limit.",
            "schema": {"type": "integer", "minimum": 1},
        }
    ]
    examples: list[object] = operation.request.model_json_schema()["examples"]
    named = {f"example {number}": {"value": value} for number, value in enumerate(examples, start=1)}
    described["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": _ref(operation.request), "examples": named}},
    }
    return {"post": described}


def _answer(operation: Operation) -> dict[str, Any]:
    if operation.answer is None:
        return {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    described = {"description": "The answer.", "content": {"application/json": {"schema": _ref(operation.answer)}}}
    if operation.request is not None:
        described["headers"] = {
            name: {"description": meaning, "schema": {"type": "number"}} for name, meaning in COST_HEADERS.items()
        }
    return described


def _failures(operation: Operation, *, with_api_key: bool) -> dict[str, Any]:
    if operation.request is not None:
        failures = {
            kind.status: kind for error, kind in ERROR_KINDS.items() if with_api_key or error is not Unauthorized
        }
        failures[415] = ErrorKind(415, "UnsupportedMediaType", "The content type is not `application/json`.")
    else:
        wanted: list[type[ServiceError]] = [Unhealthy] if operation.unready else []
        if with_api_key and operation.path not in OPEN_PATHS:
            wanted.append(Unauthorized)
        failures = {ERROR_KINDS[error].status: ERROR_KINDS[error] for error in wanted}
    return {str(status): _failure(failures[status]) for status in sorted(failures)}


def _failure(kind: ErrorKind) -> dict[str, Any]:
    example = {"error": "which field: what is wrong, what is allowed", "error_type": kind.error_type}
    content = {"application/json": {"schema": _ref(ErrorAnswer), "example": example}}
    return {"description": kind.meaning, "content": content}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF_TEMPLATE.format(model=model.__name__)}
