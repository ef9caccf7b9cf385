"""API keys: every route asks for one, except those that are named here."""

from __future__ import annotations

from starlette.types import Scope

from service.api.api_keys import ApiKeys
from service.api.paths import route_path
from service.api.request_scope import header, record_of
from service.errors import Unauthorized

# For GET and HEAD: probes and scrapers have no key, and a browser can't send one before it has the page that asks for
# it. The pages hold nothing secret, and what they call is closed.
OPEN_PATHS = frozenset({"/", "/health", "/health/live", "/health/ready", "/metrics", "/docs", "/openapi.json"})
OPEN_PREFIX = "/static/"


class ApiKeyGuard:
    """Refuses requests without `Authorization: Bearer KEY`. A route that is new is closed until named above.

    The owner of a named key is the client of the request, from whatever address it comes.
    """

    def __init__(self, api_keys: ApiKeys) -> None:
        self._api_keys = api_keys

    def __call__(self, scope: Scope) -> None:
        """Raises Unauthorized."""
        if not (self._is_authorized(scope) or _is_open(scope)):
            raise Unauthorized("the API key is missing or wrong; send the header Authorization: Bearer KEY")

    def _is_authorized(self, scope: Scope) -> bool:
        scheme, _, token = (header(scope, b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer":
            return False
        record = record_of(scope)
        client = self._api_keys.client_of(token.strip().encode("latin-1"), address=record.client)
        if client is None:
            return False
        record.client = client
        return True


def _is_open(scope: Scope) -> bool:
    path = route_path(scope)
    return scope["method"] in ("GET", "HEAD") and (path in OPEN_PATHS or path.startswith(OPEN_PREFIX))
