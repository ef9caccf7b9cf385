"""What the middleware and the routes know of a request beside its content: its record, its route, its client."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Scope

from service.api.paths import route_path
from service.observability.request_record import RequestRecord

_RECORD = "bert_service.record"

# What a trusted proxy passes on may be the word of anybody.
_SANE_ADDRESS = re.compile(r"[0-9A-Za-z.:%_-]{1,64}")


def record_of(scope: Scope) -> RequestRecord:
    """The record of a request, which `RequestRecords` has opened."""
    record: RequestRecord = scope[_RECORD]
    return record


def attach_record(scope: Scope, record: RequestRecord) -> None:
    """Let all that get the scope find the record."""
    scope[_RECORD] = record


def client_address(scope: Scope) -> str:
    """Where a request comes from; a proxy's word on it has been weighed before."""
    client = scope.get("client")
    if client is None:
        return "local"
    address: str = client[0]
    return address if _SANE_ADDRESS.fullmatch(address) else "unknown"


def header(scope: Scope, name: bytes) -> str | None:
    """The first value of a header, its name in small letters; None if there is none.

    The framework's `Headers` takes several times as long, and a request is asked for half a dozen.
    """
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


def post_endpoints(routes: Sequence[BaseRoute]) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    """What answers a `POST`, by the path of its route."""
    return {
        route.path: route.endpoint for route in routes if isinstance(route, Route) and "POST" in (route.methods or ())
    }


class RouteNames:
    """Which route a request is for, also if it is refused before it gets there.

    Args:
        routes: all routes of the application.
    """

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        known = [route for route in routes if isinstance(route, Route | Mount)]
        self._literal = {route.path for route in known if isinstance(route, Route) and "{" not in route.path}
        self._others = [route for route in known if route.path not in self._literal]

    def of(self, scope: Scope) -> str | None:
        """The route's path, in which a parameter is a name in braces; None if there is no such route."""
        path = route_path(scope)
        if path in self._literal:
            return path
        return next((route.path for route in self._others if route.matches(scope)[0] is not Match.NONE), None)
