"""A closed connection cancels the work that was done for it; ASGI servers don't do that by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect
from starlette.types import Receive

# Most requests are answered before, and so never pay for the task that watches.
_WATCH_AFTER_SECONDS = 0.05


@asynccontextmanager
async def cancelled_on_disconnect(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block when the client goes away. For use once the whole body has been read.

    Raises:
        starlette.requests.ClientDisconnect: in place of the cancellation.
    """
    block = asyncio.current_task()
    assert block is not None
    watcher: asyncio.Task[None] | None = None
    disconnected = False

    async def watch() -> None:
        nonlocal disconnected
        while (await receive())["type"] != "http.disconnect":
            pass
        disconnected = True
        block.cancel()

    def start_watcher() -> None:
        nonlocal watcher
        watcher = asyncio.create_task(watch())

    timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, start_watcher)
    try:
        yield
    except asyncio.CancelledError:
        # Somebody else's cancellation, at shutdown, must stay one.
        if disconnected and block.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()
