"""A closed connection cancels the work that was done for it; ASGI servers don't do that by themselves."""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.requests import ClientDisconnect
from starlette.types import Receive

# Most requests are answered before, and so never pay for the task that watches.
_WATCH_AFTER_SECONDS = 0.05


class CancelOnDisconnect:
    """Cancels its block when the client goes away. For use in a task, once the whole body has been read.

    Raises:
        starlette.requests.ClientDisconnect: from the `with` statement, in place of the cancellation.
    """

    __slots__ = ("_block", "_disconnected", "_receive", "_timer", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._disconnected = False
        self._watcher: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        block = asyncio.current_task()
        assert block is not None
        self._block = block
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, self._start_watcher)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        # Somebody else's cancellation, at shutdown, must stay one.
        if isinstance(error, asyncio.CancelledError) and self._disconnected and self._block.uncancel() == 0:
            raise ClientDisconnect from None

    def _start_watcher(self) -> None:
        self._watcher = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._disconnected = True
        self._block.cancel()
