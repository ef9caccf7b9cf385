"""`bert-service bench URL`: put load on a running server and tell how it stood it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from service.exit_codes import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from service.load_generator.http_client import Address, Answer, Connection, ConnectionFailure, request_bytes
from service.load_generator.load import LoadGenerator, Plan
from service.load_generator.measurements import message_of
from service.load_generator.progress import show_progress
from service.load_generator.report import table
from service.load_generator.requests import MIXED, ROUTES, Requests
from service.load_generator.texts import LengthsError, Texts, parse_lengths

LONGEST_TOKENS = 512
DEFAULT_MASK_TOKEN = "[MASK]"


class ServerFault(Exception):
    """The server cannot be measured; the message says why and what may help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line, checked."""

    address: Address
    route: str
    lengths: str
    list_size: int
    plan: Plan
    api_key: str | None
    seed: int
    json_output: bool


def add_flags(parser: ArgumentParser) -> None:
    """Give `parser` the flags of the command."""
    parser.add_argument("url", metavar="URL", help="root address of the server, such as http://localhost:8000")
    parser.add_argument(
        "--route", choices=(*ROUTES, MIXED), default="embed", help="what to ask; mixed is all three in turn (embed)"
    )
    parser.add_argument(
        "--lengths", default="47/84", help="tokens of the texts: 128, 16..512, or median/mean such as 47/84 (47/84)"
    )
    parser.add_argument("--list-size", type=_whole, default=1, metavar="N", help="texts in each request (1)")
    parser.add_argument("--connections", type=_whole, default=32, metavar="N", help="connections at once (32)")
    parser.add_argument(
        "--duration-seconds", type=_positive, default=10.0, metavar="SECONDS", help="the measured time (10)"
    )
    parser.add_argument(
        "--warm-up-seconds", type=_not_negative, default=2.0, metavar="SECONDS", help="load before it (2)"
    )
    parser.add_argument(
        "--rate",
        type=_positive,
        metavar="N",
        help="requests per second, at random times (default: each connection sends when it has its answer)",
    )
    parser.add_argument(
        "--timeout-seconds", type=_positive, default=60.0, metavar="SECONDS", help="longest wait for an answer (60)"
    )
    parser.add_argument("--api-key", help="bearer token [API_KEY]")
    parser.add_argument("--seed", type=int, default=0, help="of the texts; the same seed gives the same ones (0)")
    parser.add_argument("--json", action="store_true", dest="json_output", help="print the result as JSON")


def run(given: dict[str, Any]) -> int:
    """Run the command with parsed arguments; returns its exit code."""
    try:
        options = _options(given)
    except ValueError as error:
        return _fail(str(error), code=EXIT_USAGE)
    # A shell without job control starts what it puts in the background with the interrupt ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_bench(options))
    except ServerFault as fault:
        return _fail(str(fault), code=EXIT_FAILURE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _options(given: dict[str, Any]) -> Options:
    api_key = given["api_key"] or os.environ.get("API_KEY") or None
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise ValueError("--api-key: must be printable ASCII")
    parse_lengths(given["lengths"], limit=LONGEST_TOKENS)
    return Options(
        address=Address.parse(given["url"]),
        route=given["route"],
        lengths=given["lengths"],
        list_size=given["list_size"],
        plan=Plan(
            connections=given["connections"],
            duration_seconds=given["duration_seconds"],
            warm_up_seconds=given["warm_up_seconds"],
            rate=given["rate"],
            timeout_seconds=given["timeout_seconds"],
        ),
        api_key=api_key,
        seed=given["seed"],
        json_output=given["json_output"],
    )


async def _bench(options: Options) -> int:
    """Look at the server, run, and print; an interrupt ends the run and prints what there is."""
    info = await _server_info(options)
    requests = _requests(options, info)
    await _try_routes(options, requests)
    load = LoadGenerator(
        options.address, requests=requests, plan=options.plan, api_key=options.api_key, seed=options.seed
    )
    progress = asyncio.create_task(
        show_progress(load, duration_seconds=options.plan.duration_seconds, stream=sys.stderr)
    )
    interrupted = False
    try:
        await load.run()
    except asyncio.CancelledError:
        interrupted = True
    seconds = load.measured_seconds
    progress.cancel()
    await asyncio.wait([progress])
    if seconds:
        _print(options, info=info, load=load, seconds=seconds)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_SUCCESS if load.measurements.requests else EXIT_FAILURE


def _print(options: Options, *, info: dict[str, Any], load: LoadGenerator, seconds: float) -> None:
    plan = options.plan
    server = {name: info.get(name) for name in ("model_id", "device", "dtype", "version")}
    setting = {
        "url": str(options.address),
        "route": options.route,
        "lengths": options.lengths,
        "list_size": options.list_size,
        "connections": plan.connections,
        "rate": plan.rate,
        "seed": options.seed,
        "server": server,
    }
    summary = load.measurements.summary(seconds=seconds)
    if options.json_output:
        print(orjson.dumps({**setting, **summary}, option=orjson.OPT_INDENT_2).decode())
        return
    served = ", ".join(str(value) for value in server.values() if value) or "unknown server"
    loop = f"{plan.rate:g} requests/s" if plan.rate else "closed loop"
    print(f"{options.address}: {served}")
    print(
        f"{options.route}, lengths {options.lengths}, {options.list_size} a request, "
        f"{plan.connections} connections, {loop}, {seconds:.1f} s\n"
    )
    print(table(summary))


async def _server_info(options: Options) -> dict[str, Any]:
    """What `/info` says; a server without it is measured all the same."""
    answer = await _ask(options, request_bytes("GET", options.address, "info", api_key=options.api_key))
    try:
        info = orjson.loads(answer.body) if answer.status == 200 else {}
    except orjson.JSONDecodeError:
        info = {}
    return info if isinstance(info, dict) else {}


def _requests(options: Options, info: dict[str, Any]) -> Requests:
    limit = int(info.get("max_input_length") or LONGEST_TOKENS)
    if options.route in ("embed", MIXED):
        limit = min(limit, int(info.get("max_embed_length") or limit))
    try:
        lengths = parse_lengths(options.lengths, limit=min(limit, LONGEST_TOKENS))
    except LengthsError as error:
        raise ServerFault(f"--lengths {error}, says this server's model") from None
    return Requests(
        Texts(lengths, seed=options.seed),
        route=options.route,
        list_size=options.list_size,
        mask_token=str(info.get("mask_token") or DEFAULT_MASK_TOKEN),
    )


async def _try_routes(options: Options, requests: Requests) -> None:
    """One request to every route of the run, so that what is wrong is told before any load is put on.

    Raises:
        ServerFault: an answer that is neither 200 nor 429.
    """
    for _ in range(len(ROUTES) if options.route == MIXED else 1):
        body = requests.next()
        answer = await _ask(
            options,
            request_bytes("POST", options.address, body.route, json_bytes=body.json_bytes, api_key=options.api_key),
        )
        if answer.status not in (200, 429):
            hint = "; the URL must be the server's root address" if answer.status in (404, 405) else ""
            raise ServerFault(
                f"POST {options.address}/{body.route} answered {answer.status}: {message_of(answer)}{hint}"
            )


async def _ask(options: Options, request: bytes) -> Answer:
    connection = Connection(options.address)
    try:
        return await connection.send(request, timeout_seconds=options.plan.timeout_seconds)
    except TimeoutError:
        raise ServerFault(f"{options.address}: no answer within {options.plan.timeout_seconds:g} s") from None
    except ConnectionFailure as failure:
        raise ServerFault(f"{options.address}: {failure}") from None
    finally:
        connection.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where there is one: it halves the cost of a request."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def _fail(message: str, *, code: int) -> int:
    print(f"bert-service bench: {message}", file=sys.stderr)
    return code


def _whole(value: str) -> int:
    if not (value.isdecimal() and value.isascii() and 0 < int(value) <= 1_000_000):
        raise ArgumentTypeError("must be a whole number from 1")
    return int(value)


def _positive(value: str) -> float:
    number = _not_negative(value)
    if not number:
        raise ArgumentTypeError("must be over 0")
    return number


def _not_negative(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ArgumentTypeError("must be a number") from None
    if not 0 <= number <= 1_000_000:
        raise ArgumentTypeError("must be from 0 to 1,000,000")
    return number
