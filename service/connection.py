"""uvicorn's connections, with limits for clients that never finish a request, and answers that need no task.

By itself uvicorn waits for ever for the first byte, for the rest of a head, and for the rest of a body that was refused
unread; it takes heads and trailers of any length, and any number of requests ahead of their turn, behind which the one
that is being answered does not learn that its client has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from starlette.responses import Response
from starlette.types import Scope
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

# From the first byte of a request to the end of its head; and from an answer to the end of the body that it did not
# wait for, for a client reads an answer only when it has sent everything. A body that is waited for has the request's
# deadline.
UNFINISHED_REQUEST_SECONDS = 20

MAX_HEAD_BYTES = 65_536

# Of one connection, behind the request that is being answered.
MAX_PIPELINED_REQUESTS = 64


Refuse: TypeAlias = Callable[[Scope], Response | None]
"""The whole answer to a request with this head, with its length and not to `HEAD`; None for the application's."""


class RequestRefused(Exception):
    """Raised into the parser, for which the connection's last answer is 400."""


class Connection(HttpToolsProtocol):
    """An HTTP/1.1 connection.

    Args:
        refuse: asked before the application.
    """

    def __init__(self, *arguments: Any, refuse: Refuse, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._refuse = refuse
        self._refused_at_once = 0
        self._closes_after_body = False
        self._is_within_request = False
        self._bytes_outside_body = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        # A connection made ahead of its first request is as idle as one that is kept alive.
        self._set_keep_alive()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_within_request = False
        self._set_deadline()
        self._unset_keepalive_if_required()
        if self._running is not None:  # uvicorn tells only the last of several requests
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._bytes_outside_body += len(data)
        self._refused_at_once = 0
        super().data_received(data)
        if self._is_within_request and self._bytes_outside_body > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The request's head is too long.")
        self._set_deadline()
        self._set_keep_alive()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            raise RequestRefused
        super().on_message_begin()
        self._is_within_request = True
        self._bytes_outside_body = 0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._bytes_outside_body = 0

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_within_request = False
        if self._closes_after_body:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if self.transport.is_closing():
            return
        refusal = self._refuse(cast(Scope, cycle.scope)) if self._may_refuse() else None
        if refusal is not None:
            self._refused_at_once += 1
            self._answer(cycle, refusal)
            return
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _may_refuse(self) -> bool:
        """Only a task can wait for a client that does not read its answers, or let others have a turn."""
        return not self.flow.write_paused and self._refused_at_once < MAX_PIPELINED_REQUESTS

    def _answer(self, cycle: RequestResponseCycle, response: Response) -> None:
        head = [STATUS_LINE[response.status_code]]
        for name, value in (*cycle.default_headers, *response.raw_headers):
            head += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            head.append(b"connection: close\r\n")
        self.transport.write(b"".join((*head, b"\r\n", response.body)))
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive and cycle.more_body:
            self._closes_after_body = True  # what is not read of it would reset the connection, and the answer be lost
        elif not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _set_keep_alive(self) -> None:
        """For who has asked nothing yet, and again after the rest of a body that came behind its answer."""
        is_idle = self._is_answered() and not self._is_within_request and not self.transport.is_closing()
        if is_idle and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _set_deadline(self) -> None:
        if not (self._is_within_request and self._is_answered()):
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(UNFINISHED_REQUEST_SECONDS, self.transport.abort)

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete
