"""The OpenAPI document: what every route takes and gives, failures included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.api.auth import OPEN_PATHS
from service.api.error_responses import ERROR_KINDS, RETRY_AFTER_HEADER, ErrorKind
from service.api.openai_errors import openai_error_body, openai_status
from service.api.openai_schemas import OpenAIErrorAnswer
from service.api.openapi_examples import ERROR_MESSAGES, OPENAI_ERROR_PLACES, ROUTE_ERROR_MESSAGES
from service.api.openapi_operations import INTRODUCTION, OPERATIONS, TAGS, Link, Operation
from service.api.task_runner import COST_HEADERS, TIMEOUT_HEADER
from service.errors import Overloaded, ServiceError, Unauthorized, Unhealthy

REF_TEMPLATE = "#/components/schemas/{model}"

JsonSchemaMode = Literal["validation", "serialization"]


def openapi_document(*, version: str, root_path: str, with_api_key: bool) -> dict[str, Any]:
    """The document, as OpenAPI 3.1."""
    paths = {operation.path: _path_item(operation, with_api_key=with_api_key) for operation in OPERATIONS}
    components: dict[str, Any] = {"schemas": _schemas()}
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "bert-service",
            "version": version,
            "summary": "Fill-mask, next sentence and embeddings by a BERT model.",
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0"},
        },
        "servers": [{"url": root_path or "/"}],
        "tags": [{"name": name, "description": description} for name, description in TAGS.items()],
        "paths": paths,
        "components": components,
    }
    if with_api_key:
        components["securitySchemes"] = {"api_key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"api_key": []}]
    return document


def _schemas() -> dict[str, Any]:
    models: dict[type[BaseModel], JsonSchemaMode] = {}
    for operation in OPERATIONS:
        models[operation.error] = "serialization"
        if operation.request is not None:
            models[operation.request] = "validation"
        if operation.answer is not None:
            models[operation.answer] = "serialization"
    _, schema = models_json_schema(list(models.items()), ref_template=REF_TEMPLATE)
    definitions: dict[str, Any] = schema["$defs"]
    return definitions


def _path_item(operation: Operation, *, with_api_key: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "responses": {"200": _answer(operation), **_failures(operation, with_api_key=with_api_key)},
    }
    if with_api_key and _is_open(operation):
        described["security"] = []
    if operation.path_parameters:
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "example": example}
            for name, example in operation.path_parameters.items()
        ]
    if operation.request is None:
        return {"get": described}
    described["parameters"] = [
        {
            "name": TIMEOUT_HEADER,
            "in": "header",
            "description": "The longest time to wait for a pass, in ms; at most the server's own limit.",
            "schema": {"type": "integer", "minimum": 1},
            "example": 30_000,
        }
    ]
    requests = {
        name: {"summary": example.summary, "value": example.request} for name, example in operation.examples.items()
    }
    described["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": _ref(operation.request), "examples": requests}},
    }
    return {"post": described}


def _is_open(operation: Operation) -> bool:
    return operation.request is None and operation.path in OPEN_PATHS


def _answer(operation: Operation) -> dict[str, Any]:
    if operation.answer is None:
        content = {"schema": {"type": "string"}, "example": operation.sample}
        return {"description": "Metrics.", "content": {"text/plain": content}}
    content = {"schema": _ref(operation.answer)}
    described: dict[str, Any] = {"description": "The answer.", "content": {"application/json": content}}
    if operation.links:
        described["links"] = {name: _link(link) for name, link in operation.links.items()}
    if operation.request is None:
        content["example"] = operation.sample
        return described
    content["examples"] = {
        name: {"summary": example.summary, "value": example.answer} for name, example in operation.examples.items()
    }
    described["headers"] = {
        name: {"description": meaning, "schema": {"type": "number"}} for name, meaning in COST_HEADERS.items()
    }
    return described


def _link(link: Link) -> dict[str, Any]:
    method = "get" if link.body is None else "post"
    pointer = link.path.replace("~", "~0").replace("/", "~1")
    described: dict[str, Any] = {"operationRef": f"#/paths/{pointer}/{method}", "description": link.description}
    if link.parameters:
        described["parameters"] = dict(link.parameters)
    if link.body is not None:
        described["requestBody"] = link.body
    return described


def _failures(operation: Operation, *, with_api_key: bool) -> dict[str, Any]:
    failures = _failure_kinds(operation, with_api_key=with_api_key)
    if operation.error is OpenAIErrorAnswer:
        failures = _with_openai_statuses(failures)
    return {str(status): _failure(operation, failures[status]) for status in sorted(failures)}


def _failure_kinds(operation: Operation, *, with_api_key: bool) -> dict[int, ErrorKind]:
    if operation.request is not None:
        failures = {
            kind.status: kind
            for error, kind in ERROR_KINDS.items()
            if (with_api_key or error is not Unauthorized) and error not in operation.never
        }
        failures[415] = ErrorKind(415, "UnsupportedMediaType", "The content type is not `application/json`.")
    else:
        wanted: list[type[ServiceError]] = [Unhealthy] if operation.unready else []
        if with_api_key and not _is_open(operation):
            wanted.append(Unauthorized)
        failures = {ERROR_KINDS[error].status: ERROR_KINDS[error] for error in wanted}
    if operation.path_parameters:
        failures[404] = ErrorKind(404, "NotFound", "There is nothing of this name.")
    return failures


def _with_openai_statuses(failures: Mapping[int, ErrorKind]) -> dict[int, ErrorKind]:
    """Some kinds share a status there."""
    moved: dict[int, ErrorKind] = {}
    for kind in failures.values():
        status = openai_status(kind.status)
        others = [moved[status].meaning] if status in moved else []
        moved[status] = replace(kind, status=status, meaning=" ".join([*others, kind.meaning]))
    return moved


def _failure(operation: Operation, kind: ErrorKind) -> dict[str, Any]:
    message = ROUTE_ERROR_MESSAGES.get((operation.path, kind.status)) or ERROR_MESSAGES[kind.status]
    if operation.error is OpenAIErrorAnswer:
        example = openai_error_body(message, status=kind.status, **OPENAI_ERROR_PLACES.get(kind.status, {}))
    else:
        example = {"error": message, "error_type": kind.error_type}
    content = {"schema": _ref(operation.error), "example": example}
    described: dict[str, Any] = {"description": kind.meaning, "content": {"application/json": content}}
    if kind.status in (ERROR_KINDS[Overloaded].status, ERROR_KINDS[Unhealthy].status):
        described["headers"] = {
            RETRY_AFTER_HEADER: {
                "description": "When to come back, in s.",
                "schema": {"type": "integer", "minimum": 1, "maximum": 60},
            }
        }
    return described


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF_TEMPLATE.format(model=model.__name__)}
