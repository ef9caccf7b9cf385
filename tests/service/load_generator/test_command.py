from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest

from service.__main__ import main
from tests.service.load_generator.raw_server import INFO, Asked, good_answer, http_answer, raw_server

ROOT = Path(__file__).resolve().parents[3]
QUICK = ("--duration-seconds", "0.3", "--warm-up-seconds", "0.1", "--connections", "2", "--lengths", "13")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_result_is_a_table_below_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with raw_server() as server:
        assert main(["bench", server.url, *QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{server.url}: tiny, cpu, float32, 9"
    assert lines[1] == "embed, lengths 13, 1 a request, 2 connections, closed loop, 0.3 s"
    assert [line.split()[0] for line in lines[3:7] if line] == ["count", "requests", "texts", "tokens"]
    assert lines[-1].split() == ["failed", "0"]
    assert server.asked[0].line == "GET /info HTTP/1.1"


def test_the_result_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "from the environment")
    with raw_server() as server:
        assert main(["bench", server.url, *QUICK, "--json", "--route", "fill-mask", "--rate", "99"]) == 0
    result = orjson.loads(capsys.readouterr().out)
    assert (result["route"], result["rate"], result["server"]["model_id"]) == ("fill-mask", 99.0, "tiny")
    assert result["tokens"] == 7 * result["requests"]
    assert result["times_ms"]["server_inference"]["p99"] == 2.5
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer from the environment"}
    assert all(b"<mask>" in asked.body for asked in server.asked[1:])


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with raw_server() as server:
        assert main(["bench", server.url, *QUICK, "--duration-seconds", "0.5"]) == 0
    shown = terminal.getvalue().split("\r")
    assert any(part.startswith("[####") and " of 0.5 s, " in part for part in shown)
    assert shown[-1] == "\x1b[K"


def test_lengths_keep_to_the_models_limit(capsys: pytest.CaptureFixture[str]) -> None:
    with raw_server() as server:
        assert main(["bench", server.url, "--lengths", "16..512"]) == 1
    assert "the longest text is 41 tokens" in capsys.readouterr().err
    assert len(server.asked) == 1


def not_there(_: Asked) -> bytes:
    return http_answer(b'{"error":"no such route"}', status="404 Not Found")


def no_head(asked: Asked) -> bytes:
    if asked.line.startswith("POST /next-sentence "):
        return http_answer(b'{"error":"no NSP head","error_type":"ModelType"}', status="501 Not Implemented")
    return good_answer(asked)


def not_json(asked: Asked) -> bytes:
    return http_answer(b"<html>", status="200 OK" if asked.line.startswith("GET") else "403 Forbidden")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (not_there, "/embed answered 404: no such route; the URL must be the server's root address"),
        (no_head, "/next-sentence answered 501: no NSP head\n"),
        (not_json, "/embed answered 403: <html>\n"),
        (lambda _: b"", ": the connection was closed before the answer\n"),
    ],
)
def test_what_cannot_be_measured_is_told_before_any_load(
    answer: object, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(answer)
    with raw_server(answer) as server:
        assert main(["bench", server.url, *QUICK, "--route", "mixed"]) == 1
    assert message in capsys.readouterr().err
    assert len(server.asked) <= 4


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with raw_server() as server:
        url = server.url
    assert main(["bench", url]) == 1
    assert capsys.readouterr().err.startswith(f"bert-service bench: {url}: no connection: ")


def test_a_server_that_does_not_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with raw_server(lambda _: http_answer(INFO)[:-1]) as server:
        assert main(["bench", server.url, "--timeout-seconds", "0.1"]) == 1
    assert "no answer within 0.1 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["localhost:8000"],
        ["http://host", "--lengths", "5"],
        ["http://host", "--api-key", "a\r\nb"],
    ],
)
def test_a_wrong_address_length_or_key_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr().err.startswith("bert-service bench: ")


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["http://host", "--route", "swim"],
        ["http://host", "--connections", "0"],
        ["http://host", "--list-size", "1.5"],
        ["http://host", "--duration-seconds", "0"],
        ["http://host", "--warm-up-seconds", "-1"],
        ["http://host", "--rate", "nan"],
        ["http://host", "--timeout-seconds", "soon"],
    ],
)
def test_a_wrong_flag_is_a_usage_error(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench", *flags])
    assert caught.value.code == 2
    assert "bert-service bench: error: " in capsys.readouterr().err


def test_an_interrupt_prints_what_was_measured_so_far() -> None:
    with raw_server() as server:
        command = [sys.executable, "-m", "service", "bench", server.url, "--connections", "2", "--warm-up-seconds", "0"]
        process = subprocess.Popen(
            [*command, "--duration-seconds", "90", "--lengths", "13"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while len(server.asked) < 13 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "latency" in out
    assert "Traceback" not in err
