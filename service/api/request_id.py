"""One id and one record per request, in the answer and in the log, and the last resort for faults of our own."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Sequence

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.error_responses import unexpected_error_response
from service.api.request_scope import RouteNames, attach_record, client_address, header
from service.errors import ServiceError
from service.observability.metrics import Metrics
from service.observability.request_record import RequestRecord

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "x-request-id"
REQUEST_ID_BYTES = 16

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")


class RequestRecords:
    """Opens a record for each request, and shows it when it is complete.

    Args:
        routes: names the routes in records.
        observers: called with the record of each request when it has been answered or broken off.
    """

    def __init__(self, routes: RouteNames, *, observers: Sequence[Callable[[RequestRecord], None]]) -> None:
        self._routes = routes
        self._observers = observers

    def open(self, scope: Scope) -> RequestRecord:
        """A new record, which is found by the scope from now on."""
        given = header(scope, REQUEST_ID_HEADER.encode()) or ""
        record = RequestRecord(
            method=scope["method"],
            request_id=given if _SANE_ID.fullmatch(given) else os.urandom(REQUEST_ID_BYTES).hex(),
            client=client_address(scope),
            started=time.monotonic(),
            route=self._routes.of(scope),
            traceparent=header(scope, b"traceparent") or "",
            tracestate=header(scope, b"tracestate") or "",
        )
        attach_record(scope, record)
        return record

    def close(self, record: RequestRecord) -> None:
        """The request has been answered, or broken off."""
        record.finished = time.monotonic()
        for observe in self._observers:
            observe(record)


class RequestIdMiddleware:
    """Answers carry the client's `x-request-id`, or a new one; an exception that nobody expected becomes a 500.

    Args:
        app: what comes next.
        records: where requests are written down.
        metrics: counts faults of ours; other failures are counted where they arise.
    """

    def __init__(self, app: ASGIApp, *, records: RequestRecords, metrics: Metrics) -> None:
        self._app = app
        self._records = records
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = self._records.open(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message).append(REQUEST_ID_HEADER, record.request_id)
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception:
            logger.exception("a request failed by a fault of ours", extra={"request_id": record.request_id})
            self._metrics.request_failed(ServiceError("internal error"))
            if record.status is not None:
                raise
            await unexpected_error_response(scope)(scope, receive, send_with_id)
        finally:
            self._records.close(record)
