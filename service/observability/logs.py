"""Log records as one line each, for people or as JSON, without anything that a user sent.

Messages in this project never hold user text. Exceptions of other libraries may, in their message or in the source
lines around it; so a record's exception is written as its type and the places that it came through. Its message is
kept for the kinds that tell of the machine and the model, not of the input.
"""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from functools import partial

import orjson

from service.errors import ServiceError

_KEPT_MESSAGES = (ServiceError, RuntimeError, OSError)

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a record: `timestamp`, `level`, `logger`, `message`, `exception`, and the `extra` fields."""

    def format(self, record: logging.LogRecord) -> str:
        return orjson.dumps({**_head(record), **_extra(record), **_exception(record)}, default=str).decode()


class PlainFormatter(logging.Formatter):
    """`timestamp LEVEL logger: message key=value`, line ends escaped."""

    def format(self, record: logging.LogRecord) -> str:
        head = _head(record)
        fields = [f" {key}={value}" for key, value in {**_extra(record), **_exception(record)}.items()]
        line = f"{head['timestamp']} {head['level']} {head['logger']}: {head['message']}{''.join(fields)}"
        return line.replace("\r", "\\r").replace("\n", "\\n")


def configure_logging(*, json_output: bool, level: int | str, worker: int | None = None) -> None:
    """Send all records of the process to standard error in one of the two forms.

    Args:
        json_output: which form.
        level: the least that is written.
        worker: id of this process, if it is one of several; its records have it as the field `worker`.

    Replaces the root logger's handlers; loggers with handlers of their own (uvicorn's, unless it is started with
    `log_config=None`) are not touched.

    Raises:
        ValueError: no such level.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if json_output else PlainFormatter())
    if worker is not None:
        handler.addFilter(partial(_name_worker, worker))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # Neither form tells of these, and every record would pay for them (Logging HOWTO, "Optimization").
    for flag in ("logThreads", "logProcesses", "logMultiprocessing", "logAsyncioTasks"):
        setattr(logging, flag, False)
    logging._srcfile = None


def _name_worker(worker: int, record: logging.LogRecord) -> bool:
    vars(record)["worker"] = worker
    return True


def _head(record: logging.LogRecord) -> dict[str, str]:
    timestamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    message = record.getMessage()
    return {
        "timestamp": timestamp.replace("+00:00", "Z"),
        "level": record.levelname,
        "logger": record.name,
        # A file name that is not UTF-8 comes as lone surrogates, which JSON can't hold.
        "message": message if message.isascii() else message.encode(errors="backslashreplace").decode(),
    }


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD_FIELDS}


def _exception(record: logging.LogRecord) -> dict[str, str]:
    if record.exc_info is None or record.exc_info[1] is None:
        return {}
    return {"exception": describe_exception(record.exc_info[1])}


def describe_exception(error: BaseException) -> str:
    """Type, message if it can't hold user text, and the call chain, innermost last; then the causes alike."""
    described = type(error).__name__
    if isinstance(error, _KEPT_MESSAGES):
        described += f": {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        described += " at " + " > ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return described if cause is None else f"{described}; from {describe_exception(cause)}"
