"""Errors as HTTP answers: one table from error to status and `error_type`, and the body that they share.

On `/v1/*` status and body are OpenAI's instead (`service.api.openai_errors`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from service.api.openai_errors import openai_error_body, openai_message, openai_place, openai_status
from service.api.paths import speaks_openai
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


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """How a class of errors is answered; `meaning` is for the documentation."""

    status: int
    error_type: str
    meaning: str


VALIDATION = ErrorKind(422, "Validation", "Not valid JSON, or a value that is not allowed.")
BACKEND_ERROR = ErrorKind(500, "Backend", "The forward pass failed for this input.")

# The most derived class that is in the table decides.
ERROR_KINDS: Mapping[type[ServiceError], ErrorKind] = {
    EmptyInput: ErrorKind(
        400, "Empty", "An empty list, or a text that is empty after cleaning (half of a pair may be)."
    ),
    Unauthorized: ErrorKind(401, "Unauthorized", "The bearer token is missing or wrong."),
    PayloadTooLarge: ErrorKind(
        413, "PayloadTooLarge", "More than could ever be accepted, in bytes, tokens or predictions."
    ),
    InvalidInput: VALIDATION,
    Overloaded: ErrorKind(
        429, "Overloaded", "The queue is full, or too long for the deadline; `Retry-After` says when to come back."
    ),
    HeadMissing: ErrorKind(501, "ModelType", "The checkpoint does not hold the head that this needs."),
    Unhealthy: ErrorKind(503, "Unhealthy", "Not ready yet, or shutting down."),
    DeadlinePassed: ErrorKind(504, "Timeout", "The deadline passed while the request was waiting."),
    RequestError: VALIDATION,
    BackendFailure: BACKEND_ERROR,
    ServiceError: BACKEND_ERROR,
}

RETRY_AFTER_HEADER = "retry-after"
SHOULD_RETRY_HEADER = "x-should-retry"
ERROR_HEADERS = (RETRY_AFTER_HEADER, SHOULD_RETRY_HEADER, "www-authenticate")

# About the time that loading takes, and that a successor needs after a shutdown or a failure.
UNHEALTHY_RETRY_AFTER_SECONDS = 5


def error_kind(error: ServiceError) -> ErrorKind:
    """The row of the table for an error."""
    return next(ERROR_KINDS[base] for base in type(error).__mro__ if base in ERROR_KINDS)


def error_body(error: ServiceError) -> dict[str, str]:
    """`{"error", "error_type"}`, also as the answer for one item among others."""
    return {"error": str(error), "error_type": error_kind(error).error_type}


def error_response(error: ServiceError, *, scope: Scope) -> Response:
    """The answer for a request, of this scope, that failed as a whole."""
    headers = {}
    match error:
        case Overloaded():
            # RFC 9110 allows whole seconds alone.
            headers[RETRY_AFTER_HEADER] = str(min(60, max(1, math.ceil(error.retry_after_seconds))))
        case Unhealthy():
            headers[RETRY_AFTER_HEADER] = str(UNHEALTHY_RETRY_AFTER_SECONDS)
        case Unauthorized():
            headers["www-authenticate"] = "Bearer"
        case HeadMissing():
            # Read by the OpenAI SDK, which sends again after any other 5xx.
            headers[SHOULD_RETRY_HEADER] = "false"
    status = error_kind(error).status
    if not speaks_openai(scope):
        return json_response(error_body(error), status=status, headers=headers)
    body = openai_error_body(openai_message(error), status=status, param=openai_place(error.field))
    return json_response(body, status=openai_status(status), headers=headers)


def unexpected_error_response(scope: Scope) -> Response:
    """The answer after a fault of our own, which says nothing of it."""
    message = "internal error; the log holds its cause under this request's id"
    return _plain_error_response(message, status=500, error_type="Backend", scope=scope)


async def answer_service_error(request: Request, error: Exception) -> Response:
    """Exception handler for `ServiceError`."""
    assert isinstance(error, ServiceError)
    return error_response(error, scope=request.scope)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Exception handler for what the framework refuses: no route, wrong method, wrong content type."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    match error.status_code:
        case 404:
            message = "no such route; /docs lists all"
        case 405:
            headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))
            message = f"the route does not have this method; allowed: {headers['Allow']}"
        case _:
            message = error.detail
    error_type = HTTPStatus(error.status_code).phrase.title().replace(" ", "")
    return _plain_error_response(
        message, status=error.status_code, error_type=error_type, scope=request.scope, headers=headers
    )


def _plain_error_response(
    message: str, *, status: int, error_type: str, scope: Scope, headers: Mapping[str, str] | None = None
) -> Response:
    """For what no `ServiceError` stands for."""
    if speaks_openai(scope):
        body: object = openai_error_body(message, status=status)
    else:
        body = {"error": message, "error_type": error_type}
    return json_response(body, status=status, headers=headers)


def json_response(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A small answer in JSON."""
    return Response(orjson.dumps(body), status_code=status, headers=headers, media_type="application/json")
