"""Refusals at the door: what is refused anyway need not come in first.

Most of what a refusal costs is the way through the application: a task of the event loop, the framework, its
middleware. At many times the capacity that would take cores from the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Scope
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service.api.guards import Guards
from service.api.overload import OverloadGuard
from service.api.request_id import REQUEST_ID_HEADER, RequestRecords
from service.api.request_scope import header


class Door:
    """Gives the answers that the application would give, while it refuses everything that is for the model.

    Args:
        records: where requests are written down.
        guards: what a request must pass, `overload` the last of them.
        overload: tells whether the application refuses just now.
        trusted_proxies: whose word on the client's address counts.
    """

    def __init__(
        self, records: RequestRecords, *, guards: Guards, overload: OverloadGuard, trusted_proxies: Sequence[str]
    ) -> None:
        self._records = records
        self._guards = guards
        self._overload = overload
        self._proxies = ProxyHeadersMiddleware(_nothing, trusted_hosts=list(trusted_proxies))

    def refusal(self, scope: Scope) -> Response | None:
        """The whole answer to a request with this head; None if the application is to answer it."""
        if not (self._overload.refused_last and scope["method"] == "POST") or _is_from_a_page(scope):
            return None
        scope = {**scope}
        try:
            self._weigh_proxies(scope)
            record = self._records.open(scope)
            response = self._guards.refusal(scope)
            if response is not None:
                response.headers[REQUEST_ID_HEADER] = record.request_id
                record.status = response.status_code
                self._records.close(record)
        except Exception:
            return None  # the application meets with the same fault, and has words for it
        return response

    def _weigh_proxies(self, scope: Scope) -> None:
        weighing = self._proxies(scope, None, None)  # type: ignore[arg-type]  # it only hands them on
        with contextlib.suppress(StopIteration):  # it waits for nothing but the application
            weighing.send(None)


def _is_from_a_page(scope: Scope) -> bool:
    """Its answer may need headers that only the middleware writes."""
    return header(scope, b"origin") is not None


async def _nothing(*_: object) -> None:
    pass
