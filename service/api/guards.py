"""What a request must pass before anything else is done with it: quick checks of its head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.error_responses import error_response
from service.errors import ServiceError
from service.observability.metrics import Metrics

Guard: TypeAlias = Callable[[Scope], None]
"""Raises a ServiceError for the scope of a request, in which there is its record, if it is not to go on."""


class Guards:
    """Guards in a row, what they refuse counted and put into words.

    Args:
        guards: the first that refuses decides.
        metrics: counts what is refused.
    """

    def __init__(self, guards: Sequence[Guard], *, metrics: Metrics) -> None:
        self._guards = guards
        self._metrics = metrics

    def refusal(self, scope: Scope) -> Response | None:
        """The answer for a request that is refused; None if it may go on."""
        try:
            for guard in self._guards:
                guard(scope)
        except ServiceError as error:
            self._metrics.request_failed(error)
            return error_response(error, scope=scope)
        return None


class GuardMiddleware:
    """Lets only those requests through that the guards do not refuse."""

    def __init__(self, app: ASGIApp, *, guards: Guards) -> None:
        self._app = app
        self._guards = guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._guards.refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)
