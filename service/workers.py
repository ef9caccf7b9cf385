"""Several processes behind one address: the parent that starts and ends them, and what each of them runs.

    parent ── pipe ──► worker 0   socket, event loop, model
           ── pipe ──► worker 1   socket, event loop, model
                       …          counts in its row of the shared values

A message in a pipe is a signal that the parent got; the end of the pipe is the parent's. The other way goes what a
worker has failed of. Workers are deaf to signals themselves, which a terminal or a service manager may send to all
processes alike: each would count twice, and a second signal ends at once. If one worker fails, all end, and the parent
fails.
"""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType

from service.app import create_app
from service.ending import Failure, end_process
from service.exit_codes import EXIT_FAILURE, EXIT_SUCCESS
from service.observability.logs import configure_logging
from service.observability.metrics import Metrics
from service.observability.shared_values import SharedValues
from service.server import Server
from service.settings import Settings

SIGNALS = (signal.SIGTERM, signal.SIGINT)

STOP = b"stop"

# Between a second signal, which ends at once, and the end of those that can't follow it.
FORCED_END_SECONDS = 2
POLL_SECONDS = 0.5
# A model thread asks for the interpreter some thousand times a second, each time for microseconds. Python's own 5 ms
# would let it wait until the event loop has done all that it has to do.
SWITCH_INTERVAL_SECONDS = 50e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker as the parent has it."""

    process: BaseProcess
    pipe: Connection

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # it has ended already
            self.pipe.send_bytes(STOP)

    def failure(self, *, asked_to_end: bool) -> Failure | None:
        """Why it has ended, if it failed."""
        self.process.join()
        with contextlib.suppress(EOFError, OSError):
            if self.pipe.poll():
                told: Failure = self.pipe.recv()
                return told
        code = self.process.exitcode
        assert code is not None
        if code == EXIT_SUCCESS and asked_to_end:
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return Failure(words=f"worker {self.process.pid} {how}", plain=True)


class Supervisor:
    """Starts workers, passes signals on to them, and waits for their end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers: list[Worker] = []
        self._failure: Failure | None = None
        self._signals = 0
        self._kill_at = math.inf

    def run(self, listeners: Sequence[socket.socket]) -> Failure | None:
        """Serve with one worker for each listener, and close these here.

        Returns:
            When all workers have ended: the first failure, or None if a signal has stopped them.
        """
        # Started with the first worker, it would unblock the signals.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # which processes inherit
        handlers = {number: signal.signal(number, self._handle_signal) for number in SIGNALS}
        try:
            self._start(listeners)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            self._wait()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for worker in self._workers:
                worker.process.kill()  # if it has not ended
                worker.process.join()
        return self._failure

    def _start(self, listeners: Sequence[socket.socket]) -> None:
        context = multiprocessing.get_context("spawn")
        memory = context.RawArray("d", len(listeners) * Metrics().values_count)
        for number, listener in enumerate(listeners):
            pipe, workers_pipe = context.Pipe()
            shared = SharedValues(memory=memory, rows=len(listeners), own=number)
            process = context.Process(target=run_worker, args=(self._settings, listener, shared, workers_pipe))
            process.start()
            workers_pipe.close()
            self._workers.append(Worker(process=process, pipe=pipe))
        for listener in listeners:
            listener.close()

    def _wait(self) -> None:
        living = {worker.process.sentinel: worker for worker in self._workers}
        while living and time.monotonic() < self._kill_at:
            for sentinel in connection.wait(list(living), timeout=POLL_SECONDS):
                assert isinstance(sentinel, int)
                failure = living.pop(sentinel).failure(asked_to_end=self._is_stopping)
                if failure is not None and self._failure is None:
                    was_stopping = self._is_stopping
                    self._failure = failure
                    if not was_stopping:
                        self._stop_all()

    @property
    def _is_stopping(self) -> bool:
        return self._signals > 0 or self._failure is not None

    def _handle_signal(self, _signal: int, _frame: FrameType | None) -> None:
        was_stopping = self._is_stopping
        self._signals += 1
        if self._signals == 2:
            self._kill_at = time.monotonic() + FORCED_END_SECONDS
        if not was_stopping or self._signals == 2:
            self._stop_all()

    def _stop_all(self) -> None:
        for worker in self._workers:
            worker.stop()


def run_worker(settings: Settings, listener: socket.socket, shared: SharedValues, parent: Connection) -> None:
    """The process of one worker: serve until the parent says stop, or is no more, or the model fails."""
    configure_logging(json_output=settings.json_output, level=logging.INFO, worker=os.getpid())
    failure = serve_here(settings, listener, shared=shared, parent=parent)
    if failure is None:
        end_process(EXIT_SUCCESS)
    parent.send(failure)
    end_process(EXIT_FAILURE)


def serve_here(
    settings: Settings,
    listener: socket.socket,
    *,
    shared: SharedValues | None = None,
    parent: Connection | None = None,
) -> Failure | None:
    """Serve in this process, alone or as a worker.

    Returns:
        Why the model failed, or None after a stop in order.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    number = 0 if shared is None else shared.own
    metrics = Metrics(shared)
    app = create_app(settings, worker=number, metrics=metrics)
    lifecycle = app.state.lifecycle
    server = Server(
        app,
        lifecycle=lifecycle,
        settings=settings,
        refuse=app.state.refuse,
        removes_uds=number == 0,
        on_tick=metrics.publish,
    )
    if parent is not None:
        threading.Thread(target=_obey, args=(parent, server), name="parent", daemon=True).start()
    server.run(sockets=[listener])
    return None if lifecycle.failure is None else Failure.of(lifecycle.failure)


def _obey(parent: Connection, server: Server) -> None:
    with contextlib.suppress(EOFError, OSError):
        while parent.recv_bytes() == STOP:
            server.stop()
    os._exit(EXIT_FAILURE)  # the parent is no more, and with it who would end this process
