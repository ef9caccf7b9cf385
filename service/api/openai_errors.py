"""Errors in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`, as its SDK reads them.

https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

from typing import Any

from service.errors import ForeignTokenIds, ServiceError

# By status: `type`, and the `code` that OpenAI has for it.
_TYPES: dict[int, tuple[str, str | None]] = {
    401: ("authentication_error", "invalid_api_key"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}

_SEND_TEXT = "; LangChain's OpenAIEmbeddings sends text with check_embedding_ctx_length=False"


def openai_status(status: int) -> int:
    """The status on `/v1/*` of what is answered with `status` elsewhere."""
    return 400 if status == 422 else status


def openai_place(field: str | None) -> str | None:
    """A place in the request under OpenAI's name for it: `inputs[3]` is `input[3]`."""
    return field.replace("inputs", "input", 1) if field and field.startswith("inputs") else field


def openai_message(error: ServiceError) -> str:
    """What is wrong and, where a well-known client does that by default, how it is told not to."""
    place = openai_place(error.field)
    message = error.message if place is None else f"{place}: {error.message}"
    return message + _SEND_TEXT if isinstance(error, ForeignTokenIds) else message


def openai_error_body(message: str, *, status: int, param: str | None = None, code: str | None = None) -> Any:
    """The body of an error.

    Args:
        message: for people.
        status: before or after `openai_status`.
        param: place in the request that is at fault.
        code: for programs, where there is one beside the status's own.
    """
    kind, usual_code = _TYPES.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual_code}}
