"""The command `bert-service`, also `python -m service`."""

from __future__ import annotations

import logging
import os
import sys
import threading
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from service import __version__
from service.load_generator.command import add_flags as add_bench_flags
from service.settings import Settings, SettingsError, add_flags, load_settings

logger = logging.getLogger("service")

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = vars(_parser().parse_args(arguments))
    if given.pop("command") == "bench":
        from service.load_generator import command

        return command.run(given)
    try:
        settings = load_settings(given)
    except SettingsError as error:
        print(f"bert-service: {error}", file=sys.stderr)
        return EXIT_USAGE
    return serve(settings)


def serve(settings: Settings) -> int:
    """Serve until a signal (0) or until the model fails (1)."""
    # Imported here so that --help and faults in settings are told without waiting for the web framework.
    from service.app import create_app
    from service.observability.logs import configure_logging
    from service.server import Server, address, listen

    configure_logging(json_output=settings.json_output, level=logging.INFO)
    try:
        listener = listen(settings)
    except OSError as error:
        print(f"bert-service: {error.strerror}", file=sys.stderr)
        return EXIT_FAILURE
    logger.info("listening on %s", address(listener))
    app = create_app(settings)
    lifecycle = app.state.lifecycle
    Server(app, lifecycle=lifecycle, settings=settings).run(sockets=[listener])
    return 0 if lifecycle.failure is None else _report(lifecycle.failure)


def _report(failure: BaseException) -> int:
    if isinstance(failure, SettingsError) or _is_about_the_model(failure):
        print(f"bert-service: {failure}", file=sys.stderr)
    else:
        logger.critical("the model has failed", exc_info=failure)
    return EXIT_FAILURE


def _is_about_the_model(failure: BaseException) -> bool:
    """Does its message tell the operator all there is to tell?"""
    from bert_core import CheckpointError
    from service.engine.device import DeviceError

    return isinstance(failure, CheckpointError | DeviceError)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="bert-service", description="BERT behind one port: fill-mask, next-sentence and embeddings."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serving = commands.add_parser(
        "serve",
        help="serve a checkpoint over HTTP",
        description="Serve a checkpoint over HTTP. Each setting is a flag and, in brackets, an environment variable.",
    )
    add_flags(serving)
    add_bench_flags(
        commands.add_parser(
            "bench",
            help="put load on a running server and measure it",
            description="Put load on a running server and measure it: rates, a table of latencies, failures by kind.",
        )
    )
    return parser


def run() -> NoReturn:
    """The process: `main`, and its end.

    A load or a pass that still runs in its thread would outlive the interpreter, and PyTorch aborts the process then,
    which looks like a crash; so the process ends without waiting for threads.
    """
    try:
        code = main()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    if threading.active_count() > 1:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
