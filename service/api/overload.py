"""What cannot be taken on is refused first of all: before a route is looked for, and long before a body is read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.error_responses import error_response
from service.api.request_scope import record_of
from service.api.task_runner import ModelServer
from service.errors import ServiceError
from service.observability.metrics import Metrics


class OverloadMiddleware:
    """Refuses requests for the model that could not be taken on now, or not be answered in time.

    The more of them there are, the less each may cost. One that sets itself a shorter deadline may yet be refused by
    its route.

    Args:
        app: what comes next.
        routes: those whose `POST` is for the model.
        model: knows whether there is room.
        timeout_seconds: the longest that a request may take.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        routes: Sequence[BaseRoute],
        model: ModelServer,
        metrics: Metrics,
        timeout_seconds: float,
    ) -> None:
        self._app = app
        self._paths = {route.path for route in routes if isinstance(route, Route) and "POST" in (route.methods or ())}
        self._model = model
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            record = record_of(scope)
            if record.route in self._paths:
                deadline = time.monotonic() + self._timeout_seconds
                try:
                    self._model.check_admission(client=record.client, deadline=deadline)
                except ServiceError as error:
                    self._metrics.request_failed(error)
                    await error_response(error, scope=scope)(scope, receive, send)
                    return
        await self._app(scope, receive, send)
