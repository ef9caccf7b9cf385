"""What cannot be taken on is refused first of all: before a route is looked for, and long before a body is read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.routing import BaseRoute
from starlette.types import Scope

from service.api.request_scope import post_endpoints, record_of
from service.api.task_runner import ModelServer


class OverloadGuard:
    """Refuses requests for the model that could not be taken on now, or not be answered in time.

    One that sets itself a shorter deadline may yet be refused by its route.

    Args:
        routes: those whose `POST` is for the model.
        model: knows whether there is room.
        timeout_seconds: the longest that a request may take.
    """

    def __init__(self, routes: Sequence[BaseRoute], *, model: ModelServer, timeout_seconds: float) -> None:
        self._paths = post_endpoints(routes).keys()
        self._model = model
        self._timeout_seconds = timeout_seconds
        self.refused_last = False
        """Whether the last request for the model did not get past: the next one probably will not, either."""

    def __call__(self, scope: Scope) -> None:
        """Raises Overloaded or Unhealthy."""
        record = record_of(scope)
        if scope["method"] == "POST" and record.route in self._paths:
            self.refused_last = True
            self._model.check_admission(client=record.client, deadline=time.monotonic() + self._timeout_seconds)
            self.refused_last = False
