"""API keys: every route asks for one, except those that are named here."""

from __future__ import annotations

from hmac import compare_digest

from pydantic import SecretStr
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.error_responses import error_response
from service.api.request_scope import path_below_root
from service.errors import Unauthorized
from service.observability.metrics import Metrics

# For GET and HEAD: probes and scrapers have no key, and a browser can't send one before it has the page that asks for
# it. The pages hold nothing secret, and what they call is closed.
OPEN_PATHS = frozenset({"/", "/health", "/health/live", "/health/ready", "/metrics", "/docs", "/openapi.json"})
OPEN_PREFIX = "/static/"


class ApiKeyMiddleware:
    """Answers 401 to requests without `Authorization: Bearer KEY`. A route that is new is closed until named above."""

    def __init__(self, app: ASGIApp, *, api_key: SecretStr, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        self._api_key = api_key.get_secret_value().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not (_is_open(scope) or self._is_authorized(Headers(scope=scope))):
            error = Unauthorized("the API key is missing or wrong; send the header Authorization: Bearer KEY")
            self._metrics.request_failed(error)
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_authorized(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and compare_digest(token.strip().encode("latin-1"), self._api_key)


def _is_open(scope: Scope) -> bool:
    path = path_below_root(scope)
    return scope["method"] in ("GET", "HEAD") and (path in OPEN_PATHS or path.startswith(OPEN_PREFIX))
