from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service import __version__
from service.__main__ import main
from service.server import listen
from service.settings import Settings

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
    with listen(Settings(host="127.0.0.1", port=0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--host", "127.0.0.1", "--port", str(port)]) == 1
    assert f"bert-service: cannot listen on 127.0.0.1 port {port}: Address already in use\n" in capsys.readouterr().err


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
