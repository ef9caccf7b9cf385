from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_core import CheckpointError
from bert_core.tokenizer import TokenizerError
from service import __version__
from service.__main__ import main
from service.checkpoints.hub import HubError
from service.engine.device import DeviceError
from service.lifecycle import ServedEngine
from service.server import listen
from service.settings import Settings
from tests.service.fake_engine import FakeEngine
from tests.service.serving import wait_until

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"bert-service {__version__}\n"
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("arguments", [[], ["swim"], ["serve", "--no-such-flag"]])
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "bert-service" in capsys.readouterr().err


def test_a_bad_setting_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "65536"]) == 2
    assert capsys.readouterr().err == (
        "bert-service: --port (PORT) is '65536': input should be less than or equal to 65535\n"
    )


def test_a_port_that_is_taken_ends_before_the_model_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with listen(Settings(host="127.0.0.1", port=0))[0] as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--host", "127.0.0.1", "--port", str(port)]) == 1
    assert f"bert-service: cannot listen on 127.0.0.1 port {port}: Address already in use\n" in capsys.readouterr().err


def serve_with(load: Callable[..., ServedEngine], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("service.app.load_engine", load)
    return main(["serve", "--host", "127.0.0.1", "--port", "0"])


def test_a_signal_ends_the_service_without_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(warm_up_with=lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert serve_with(lambda _, **__: engine, monkeypatch) == 0


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (CheckpointError(Path("/models/x"), ["config.json is missing"]), "bert-service: /models/x"),
        (TokenizerError(Path("/models/x"), ["vocab.txt is missing"]), "bert-service: /models/x: not a BERT tokenizer"),
        (DeviceError("device: no such"), "bert-service: device: no such\n"),
        (HubError("there is no org/x"), "bert-service: there is no org/x\n"),
        (RuntimeError("out of memory"), "CRITICAL service: the model has failed exception=RuntimeError: out of memory"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_a_failure_that_is_told(
    failure: Exception, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(_: Settings, **_worker: int) -> FakeEngine:
        raise failure

    assert serve_with(load, monkeypatch) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--model-id", "/no/such/folder"], "/no/such/folder"), (["--device", "cuda:77"], "device: ")],
)
def test_a_model_that_cannot_be_had_is_told_without_a_traceback(flags: list[str], message: str) -> None:
    command = [sys.executable, "-m", "service", "serve", "--host", "127.0.0.1", "--port", "0", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert message in done.stderr.partition("bert-service: ")[2]


@pytest.mark.parametrize("wait_seconds", [0.0, 1.5, 3.0])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_loads_or_warms_up_is_no_crash(
    wait_seconds: float, number: signal.Signals, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "service", "serve", "--host", "127.0.0.1", "--port", "0", "--device", "cpu"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        wait_until(lambda: b"listening on" in log.read_bytes())
        time.sleep(0.3 + wait_seconds)  # until uvicorn has its handlers, then at any stage
        process.send_signal(number)
        assert process.wait(60) == 0, log.read_text()
        assert "terminate called" not in log.read_text()
    finally:
        process.kill()
        process.wait()
