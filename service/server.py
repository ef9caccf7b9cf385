"""uvicorn with a clear word on bind errors and a shutdown in order: unready, then deaf, then drained."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import math
import os
import socket
import stat
import sys
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from service.connection import Connection, Refuse
from service.lifecycle import ModelLifecycle
from service.settings import Settings

logger = logging.getLogger(__name__)

BACKLOG = 2048

# Longer than the 60 s for which common load balancers keep an idle connection: the one that reuses closes it.
KEEP_ALIVE_SECONDS = 75

# A client that takes none of its answer for so long, or does not acknowledge it, is given up.
UNREAD_ANSWER_SECONDS = 60

# For writing out what the drain has answered; who takes none of an answer for so long during it is given up.
GRACE_SECONDS = 3

# Allocations between two runs of the garbage collector.
GARBAGE_OBJECTS = 50_000


def listen(settings: Settings) -> list[socket.socket]:
    """Sockets that listen where the settings say, one for each worker.

    On Linux each worker has a queue of connections of its own, over which the kernel spreads them; from a queue that
    they share, one that wakes up first takes all connections of a burst. Elsewhere it is the same socket for all.

    Raises:
        OSError: the place can't be had, or is in use; says which.
    """
    place = settings.uds or f"{settings.host} port {settings.port}"
    try:
        if settings.uds:
            return [_unix_socket(settings.uds)] * settings.workers
        if settings.workers > 1 and sys.platform == "linux":
            return _tcp_sockets(settings.host, settings.port, count=settings.workers)
        return [_tcp_socket(settings.host, settings.port)] * settings.workers
    except OSError as error:
        # Not `strerror`, to which `socket.create_server` adds the address in its own way.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(error.errno, f"cannot listen on {place}: {reason}") from None


def address(listener: socket.socket, *, tls: bool = False) -> str:
    """Where a bound socket is reached, as a URL or, of a Unix socket, its path."""
    name = listener.getsockname()
    if isinstance(name, str):
        return name
    host, port = name[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def _tcp_sockets(host: str, port: int, *, count: int) -> list[socket.socket]:
    # Alone first, or another service of the same user would share the port instead of being told that it is taken.
    with _tcp_socket(host, port) as alone:
        port = alone.getsockname()[1]
    return [_tcp_socket(host, port, reuse_port=True) for _ in range(count)]


def _tcp_socket(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    ipv6 = ":" in host
    listener = socket.create_server(
        (host, port),
        family=socket.AF_INET6 if ipv6 else socket.AF_INET,
        backlog=BACKLOG,
        reuse_port=reuse_port,
        dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
    )
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # on Linux; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_ANSWER_SECONDS)
    return listener


def _unix_socket(path: str) -> socket.socket:
    if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
        if _is_listened_on(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        os.unlink(path)  # left by a process that was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)  # at once, so that a second server finds this one here
    except OSError:
        listener.close()
        raise
    return listener


def _is_listened_on(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # the backlog is full
            return True
    return True


class Server(uvicorn.Server):
    """Serves an application until a signal or the death of its model.

    SIGTERM or SIGINT: readiness turns 503; after `shutdown_delay_seconds` nothing new is accepted; what was accepted
    is answered within `drain_timeout_seconds`, at worst with 503. A client that does not read its answer is not waited
    for. A second signal ends at once.

    Args:
        app: what it serves.
        lifecycle: of the application's model.
        settings: all of them.
        refuse: answers requests that need not come to the application.
        removes_uds: whether it takes away the Unix socket's path at the end; only one of several servers may.
        on_tick: called ten times a second.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        lifecycle: ModelLifecycle,
        settings: Settings,
        refuse: Refuse,
        removes_uds: bool = True,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        password = settings.ssl_keyfile_password
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level=logging.WARNING,  # what it does is told here and by the model's lifecycle
                access_log=False,
                proxy_headers=False,  # the application weighs them by `trusted_proxies`
                server_header=False,
                lifespan="on",
                http=partial(Connection, refuse=refuse),  # type: ignore[arg-type]  # it wants a class, and calls it
                ws="none",
                ssl_certfile=settings.ssl_certfile,
                ssl_keyfile=settings.ssl_keyfile,
                ssl_keyfile_password=password.get_secret_value() if password else None,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=math.ceil(settings.drain_timeout_seconds) + GRACE_SECONDS,
            )
        )
        self._lifecycle = lifecycle
        self._uds = settings.uds if removes_uds else None
        self._on_tick = on_tick
        self._delay_seconds = settings.shutdown_delay_seconds
        self._drain_timeout_seconds = settings.drain_timeout_seconds
        self._signalled = False
        self._close_at: float | None = None
        lifecycle.on_ready = _spare_collector
        lifecycle.on_failure = self._exit_after_failure

    def handle_exit(self, _signal: int, _frame: FrameType | None) -> None:
        # Not passed on: uvicorn would raise the signal again at the end, and the exit code would be the signal's.
        self.stop()

    def stop(self) -> None:
        """What a signal does; from any thread."""
        if self._signalled:
            self.should_exit = self.force_exit = True
        self._signalled = True

    async def on_tick(self, counter: int) -> bool:
        self._on_tick()
        if self._signalled and self._close_at is None:
            self._lifecycle.announce_shutdown()
            self._close_at = time.monotonic() + self._delay_seconds
        if self._close_at is not None and time.monotonic() >= self._close_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("shutting down")
        if self._uds:
            # Before the socket is closed: from then on the path may be a successor's.
            with contextlib.suppress(OSError):
                os.unlink(self._uds)
        self._drop_idle_tls_connections()
        # Runs as soon as the sockets are closed.
        draining = asyncio.create_task(self._lifecycle.drain(timeout_seconds=self._drain_timeout_seconds))
        giving_up = asyncio.create_task(self._give_up_on_who_does_not_read())
        try:
            await super().shutdown(sockets)
        finally:
            giving_up.cancel()
        if not self.force_exit:
            await draining
        logger.info("stopped")

    def _drop_idle_tls_connections(self) -> None:
        """Without the farewell of TLS, for which clients that keep a connection unread don't answer in time."""
        if not self.config.is_ssl:
            return
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            is_idle = connection.cycle is None or connection.cycle.response_complete
            if is_idle and not connection.flow.write_paused:
                connection.transport.abort()

    async def _give_up_on_who_does_not_read(self) -> None:
        """One such client would hold up the end until the timeout, which may be later than a kill."""
        untaken_before: dict[Connection, int] = {}
        while True:
            untaken = {}
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                untaken[connection] = _untaken_bytes(connection.transport)
                if 0 < untaken[connection] == untaken_before.get(connection):
                    connection.transport.abort()
            untaken_before = untaken
            await asyncio.sleep(GRACE_SECONDS)

    def _exit_after_failure(self) -> None:
        self.should_exit = True


def _untaken_bytes(transport: asyncio.Transport) -> int:
    """What was written and the client's machine has not acknowledged; only what the kernel has not taken, but on Linux.

    The kernel takes more only when a third of its own buffer is free, which a slow reader may need long for.
    """
    waiting = transport.get_write_buffer_size()
    if sys.platform != "linux":
        return waiting
    import fcntl
    import termios

    with contextlib.suppress(OSError):
        sent = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        waiting += int.from_bytes(sent, sys.byteorder)
    return waiting


def _spare_collector() -> None:
    """All threads wait for Python's collector of cyclic garbage, of which requests make next to none.

    What is there when the model is ready stays for good, hundreds of thousands of objects of the libraries; and a large
    body alone makes as many lists.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, *gc.get_threshold()[1:])
