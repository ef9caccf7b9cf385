"""The command `bert-service`, also `python -m service`."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import NoReturn

from service import __version__
from service.checkpoints import download_command, info_command
from service.ending import end_process
from service.exit_codes import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from service.load_generator.command import add_flags as add_bench_flags
from service.settings import Settings, SettingsError, add_flags, load_settings
from service.start_checks import check_start

logger = logging.getLogger("service")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    given = vars(_parser().parse_args(arguments))
    command = given.pop("command")
    if command == "bench":
        from service.load_generator.command import run as run_bench

        return run_bench(given)
    if command == "download":
        return download_command.run(given)
    if command == "info":
        return info_command.run(given)
    try:
        settings = load_settings(given)
        check_start(settings)
    except SettingsError as error:
        print(f"bert-service: {error}", file=sys.stderr)
        return EXIT_USAGE
    return serve(settings)


def serve(settings: Settings) -> int:
    """Serve until a signal (0) or until the model or a worker fails (1)."""
    # Imported here so that --help and faults in settings are told without waiting for the web framework.
    from service.observability.logs import configure_logging
    from service.server import address, listen
    from service.workers import Supervisor, serve_here

    configure_logging(json_output=settings.json_output, level=logging.INFO)
    try:
        listeners = listen(settings)
    except OSError as error:
        print(f"bert-service: {error.strerror}", file=sys.stderr)
        return EXIT_FAILURE
    logger.info("listening on %s", address(listeners[0], tls=settings.ssl_certfile is not None))
    failure = serve_here(settings, listeners[0]) if settings.workers == 1 else Supervisor(settings).run(listeners)
    if failure is None:
        return EXIT_SUCCESS
    failure.tell()
    return EXIT_FAILURE


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
    download_command.add_flags(
        commands.add_parser(
            "download",
            help="download a checkpoint from the Hugging Face hub",
            description="Download a checkpoint from the Hugging Face hub to a folder: only the files that are needed, "
            "checked by loading them. Private and gated ones need HF_TOKEN.",
        )
    )
    info_command.add_flags(
        commands.add_parser(
            "info",
            help="tell what a checkpoint holds, and what is wrong with it",
            description="Tell what a checkpoint holds, and what is wrong with it. The exit code is 1 if it cannot be "
            "served.",
        )
    )
    add_bench_flags(
        commands.add_parser(
            "bench",
            help="put load on a running server and measure it",
            description="Put load on a running server and measure it: rates, a table of latencies, failures by kind.",
        )
    )
    return parser


def run() -> NoReturn:
    """The process: `main`, and its end."""
    try:
        code = main()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    end_process(code)


if __name__ == "__main__":
    run()
