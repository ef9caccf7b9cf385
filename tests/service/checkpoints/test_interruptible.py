from __future__ import annotations

import os
import signal
import threading

import pytest

from service.checkpoints.interruptible import in_daemon_thread, interrupted_by_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_at_once_and_handlers_are_put_back(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    release = threading.Event()

    def work() -> bool:
        os.kill(os.getpid(), number)
        return release.wait(60)

    try:
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            in_daemon_thread(work)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        release.set()
        signal.signal(number, before)


def test_results_and_errors_come_back() -> None:
    def fail() -> None:
        raise OSError("full")

    assert in_daemon_thread(lambda: threading.current_thread().daemon)
    with pytest.raises(OSError, match="full"):
        in_daemon_thread(fail)
