"""One line a record, and nothing that a user sent."""

from __future__ import annotations

import logging
import re

import orjson
import pytest

from service.errors import BackendFailure
from service.observability.logs import JsonFormatter, PlainFormatter, configure_logging, describe_exception

SECRET = "my diary"


def raise_chained() -> None:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        raise RuntimeError("CUDA error: out of memory") from error


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("service.x", logging.WARNING, "x.py", 7, message, arguments, None)
    made.created = 1_700_000_000.25
    vars(made).update(extra)
    return made


def failing_record() -> logging.LogRecord:
    made = record("a pass failed")
    with pytest.raises(RuntimeError) as failure:
        raise_chained()
    made.exc_info = (failure.type, failure.value, failure.tb)
    return made


def test_json() -> None:
    line = JsonFormatter().format(record("took %d ms\nin all", 13, request_id="ab", items=3))
    assert "\n" not in line
    assert orjson.loads(line) == {
        "timestamp": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "service.x",
        "message": "took 13 ms\nin all",
        "request_id": "ab",
        "items": 3,
    }


def test_plain() -> None:
    line = PlainFormatter().format(record("took %d ms\r\nin all", 13, request_id="ab", items=3))
    assert line == "2023-11-14T22:13:20.250Z WARNING service.x: took 13 ms\\r\\nin all request_id=ab items=3"


def test_a_file_name_that_is_not_utf8() -> None:
    assert orjson.loads(JsonFormatter().format(record("no file %s", "a\udcff")))["message"] == "no file a\\udcff"


@pytest.mark.parametrize("formatter", [JsonFormatter(), PlainFormatter()])
def test_an_exception_is_told_without_what_it_may_quote(formatter: logging.Formatter) -> None:
    line = formatter.format(failing_record())
    assert "\n" not in line
    assert SECRET not in line
    assert re.search(
        r"RuntimeError: CUDA error: out of memory at .*test_logs\.py:\d+ raise_chained; "
        r"from ValueError at [^;]*test_logs\.py:\d+ raise_chained",
        line,
    )


def test_what_the_service_says_itself_is_kept() -> None:
    assert describe_exception(BackendFailure("the forward pass failed")) == "BackendFailure: the forward pass failed"
    assert describe_exception(KeyError(SECRET)) == "KeyError"


def test_a_suppressed_context_is_not_told() -> None:
    error = RuntimeError("outer")
    error.__context__ = KeyError(SECRET)
    assert describe_exception(error) == "RuntimeError: outer; from KeyError"
    error.__suppress_context__ = True
    assert describe_exception(error) == "RuntimeError: outer"


@pytest.fixture
def _no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


@pytest.mark.usefixtures("_no_handlers")
@pytest.mark.parametrize(("json_output", "opening"), [(True, "{"), (False, "2")])
def test_configure_logging(json_output: bool, opening: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json_output=not json_output, level="DEBUG")
    configure_logging(json_output=json_output, level="INFO")
    logging.getLogger("service.x").debug("hidden")
    logging.getLogger("service.x").info("shown")
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith(opening)
    assert "shown" in line


@pytest.mark.usefixtures("_no_handlers")
def test_one_of_several_processes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json_output=True, level="INFO", worker=1234)
    logging.getLogger("service.x").info("shown")
    assert orjson.loads(capsys.readouterr().err)["worker"] == 1234


@pytest.mark.usefixtures("_no_handlers")
def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configure_logging(json_output=True, level="LOUD")
