"""The FastAPI application, with a short way to the routes of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.error_responses import answer_http_exception, answer_service_error
from service.api.request_scope import post_endpoints, record_of
from service.errors import ServiceError


class Application(FastAPI):
    """FastAPI behind this service's own middleware, `RequestIdMiddleware` among them.

    Routes of the framework's own kind may be added. `debug`, `max_body_size` and handlers for 500 have no effect: the
    layers that heed them are left out.

    Args:
        model_routes: those whose `POST` is for the model; they are routes as well.
    """

    def __init__(self, *, model_routes: Sequence[BaseRoute], **named: Any) -> None:
        self._model_routes = model_routes
        super().__init__(
            exception_handlers={ServiceError: answer_service_error, HTTPException: answer_http_exception}, **named
        )

    def build_middleware_stack(self) -> ASGIApp:
        """Ours, then the handlers of errors, the short way, and the router."""
        app: ASGIApp = ModelShortcut(AsyncExitStackMiddleware(self.router), routes=self._model_routes)
        handlers: Any = self.exception_handlers
        app = ExceptionMiddleware(app, handlers=handlers)
        for middleware, arguments, named in reversed(self.user_middleware):
            app = middleware(app, *arguments, **named)
        return app


class ModelShortcut:
    """Answers what is for the model, and lets the router have all else.

    Args:
        app: what comes next.
        routes: those whose `POST` is answered here.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._endpoints = post_endpoints(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        endpoint = self._endpoints.get(record_of(scope).route or "") if is_post else None
        if endpoint is None:
            await self._app(scope, receive, send)
        else:
            response = await endpoint(Request(scope, receive))
            await response(scope, receive, send)
