"""`bert-service info MODEL`: what a checkpoint holds and what is wrong with it, without a server."""

from __future__ import annotations

import dataclasses
import os
import sys
from argparse import ArgumentParser
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from service.checkpoints.hub import HubError
from service.checkpoints.interruptible import in_daemon_thread, interrupted_by_signals
from service.checkpoints.location import Location, locate
from service.exit_codes import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS

if TYPE_CHECKING:
    from service.checkpoints.report import CheckpointReport


def add_flags(parser: ArgumentParser) -> None:
    """Give `parser` the flags of the command."""
    parser.add_argument(
        "model", metavar="MODEL", help="folder, or name on the hub, whose files are then brought into its cache"
    )
    parser.add_argument("--revision", help="branch, tag or commit on the hub (default: the main branch)")
    parser.add_argument("--offline", action="store_true", help="never ask the hub: a name must be in its cache")
    parser.add_argument("--json", action="store_true", dest="json_output", help="print the report as JSON")


def run(given: dict[str, Any]) -> int:
    """Run the command with parsed arguments; 1 if the checkpoint cannot be had or served."""
    # Imported here so that --help is told without waiting for torch.
    from bert_core import CheckpointError
    from service.checkpoints.report import inspect_checkpoint, report_of_problems

    model = given["model"]
    location = None
    try:
        with interrupted_by_signals():
            location = in_daemon_thread(partial(locate, model, revision=given["revision"], offline=given["offline"]))
        report = inspect_checkpoint(location.folder)
    except CheckpointError as error:
        report = report_of_problems(error.problems)
    except HubError as error:
        print(f"bert-service info: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    try:
        _print(report, model=model, location=location, json_output=given["json_output"])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILURE if report.problems else EXIT_SUCCESS


def _print(report: CheckpointReport, *, model: str, location: Location | None, json_output: bool) -> None:
    from service.checkpoints.report_text import report_lines

    revision = None if location is None else location.revision
    if json_output:
        folder = None if location is None else _text(str(location.folder))
        content = {
            "model_id": _text(model),
            "revision": revision,
            "folder": folder,
            **dataclasses.asdict(report),
        }
        print(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())
    else:
        print(model if revision is None else f"{model} at {revision}")
        print("\n".join(report_lines(report)))


def _text(path: str) -> str:
    """A path that is not UTF-8 comes as lone surrogates, which JSON can't hold."""
    return path.encode(errors="backslashreplace").decode()
