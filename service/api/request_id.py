"""One id per request, in the answer and in the log, and the last resort for faults of our own."""

from __future__ import annotations

import logging
import re
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.error_responses import unexpected_error_response

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "x-request-id"

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class RequestIdMiddleware:
    """Answers carry the client's `x-request-id`, or a new one; an exception that nobody expected becomes a 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        request_id = given if _SANE_ID.fullmatch(given) else uuid4().hex
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            logger.exception("a request failed by a fault of ours", extra={"request_id": request_id})
            if started:
                raise
            await unexpected_error_response()(scope, receive, send_with_id)
