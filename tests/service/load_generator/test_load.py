from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import orjson

from service.load_generator.http_client import Address
from service.load_generator.load import NOT_SENT, LoadGenerator, Plan
from service.load_generator.requests import Requests
from service.load_generator.texts import Texts, parse_lengths
from tests.service.load_generator.raw_server import COSTS, Asked, RawServer, http_answer, raw_server


def run(
    answer: Callable[[Asked], bytes],
    *,
    seconds: float = 0.4,
    connections: int = 3,
    rate: float | None = None,
    timeout_seconds: float = 10.0,
    warm_up_seconds: float = 0.0,
    route: str = "embed",
    list_size: int = 1,
) -> tuple[LoadGenerator, RawServer, float]:
    """The load, the server and how long it took."""
    with raw_server(answer) as server:
        load = LoadGenerator(
            Address.parse(server.url),
            requests=Requests(
                Texts(parse_lengths("6..13", limit=41), seed=1), route=route, list_size=list_size, mask_token="<m>"
            ),
            plan=Plan(
                connections=connections,
                duration_seconds=seconds,
                warm_up_seconds=warm_up_seconds,
                rate=rate,
                timeout_seconds=timeout_seconds,
            ),
            api_key="secret",
            seed=2,
        )
        began = time.perf_counter()
        asyncio.run(load.run())
        return load, server, time.perf_counter() - began


def costs_after(seconds: float) -> Callable[[Asked], bytes]:
    """Each connection has a thread of its own at the server."""

    def answer(_: Asked) -> bytes:
        time.sleep(seconds)
        return http_answer(b"[]", headers=COSTS)

    return answer


def test_every_connection_asks_again_when_it_has_its_answer() -> None:
    load, server, _ = run(costs_after(0.0), list_size=5)
    measured = load.measurements
    assert server.connections == 3
    assert len(server.asked) >= measured.requests > 3
    assert measured.texts == 5 * measured.requests
    assert measured.tokens == 7 * measured.requests
    assert list(measured.times_ms["server queue"]) == [1.5] * len(server.asked)
    assert not measured.failures
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer secret"}
    inputs = [text for asked in server.asked for text in orjson.loads(asked.body)["inputs"]]
    assert len(set(inputs)) == len(inputs) == 5 * len(server.asked)


def test_mixed_load_asks_every_route_in_its_form() -> None:
    _, server, _ = run(costs_after(0.0), route="mixed")
    bodies = {asked.line.split()[1]: orjson.loads(asked.body)["inputs"] for asked in server.asked}
    assert bodies.keys() == {"/embed", "/fill-mask", "/next-sentence"}
    assert "<m>" in bodies["/fill-mask"].split()
    assert "<m>" not in bodies["/embed"].split()
    assert bodies["/next-sentence"].keys() == {"text", "text_pair"}


def test_an_answer_after_the_end_has_a_latency_but_no_part_in_the_rate() -> None:
    load, _, seconds = run(costs_after(0.3), seconds=0.2, connections=1)
    assert load.measurements.requests == 0
    assert len(load.measurements.times_ms["latency"]) == 1
    assert load.measurements.times_ms["latency"][0] >= 300
    assert seconds >= 0.3
    assert load.measured_seconds == 0.2


def test_what_is_sent_during_the_warm_up_has_no_latency() -> None:
    load, server, _ = run(costs_after(0.01), warm_up_seconds=0.3, seconds=0.3)
    timed = len(load.measurements.times_ms["latency"])
    assert 0 < timed < len(server.asked) - 3
    assert load.measurements.requests <= timed + 3


def test_retry_after_is_waited_for() -> None:
    refusal = http_answer(
        b'{"error":"full","error_type":"Overloaded"}', status="429 Too Many Requests", headers={"Retry-After": "60"}
    )
    load, server, seconds = run(lambda _: refusal, seconds=0.3)
    assert load.measurements.failures == {"429 Overloaded": 3}
    assert len(server.asked) == 3
    assert 0.3 <= seconds < 5


def test_refusals_without_retry_after_are_counted_and_tried_on() -> None:
    load, server, _ = run(lambda _: http_answer(b"", status="500 Oh"), connections=1)
    assert load.measurements.failures == {"500": len(server.asked)}
    assert len(server.asked) > 3
    assert load.measurements.requests == 0


def test_a_server_that_hangs_up_is_not_stormed() -> None:
    load, server, _ = run(lambda _: b"", connections=1)
    assert load.measurements.failures == {"the connection was closed before the answer": len(server.asked)}
    assert 1 < len(server.asked) <= 5


def test_a_slow_answer_is_a_timeout() -> None:
    load, _, _ = run(costs_after(0.25), seconds=0.15, connections=1, timeout_seconds=0.1)
    assert load.measurements.failures.keys() == {"no answer within 0.1 s"}
    assert not load.measurements.times_ms["latency"]


def test_arrivals_keep_their_rate_whatever_the_server_does() -> None:
    load, server, _ = run(costs_after(0.0), seconds=1.0, rate=200)
    assert 130 < len(server.asked) < 270
    assert len(load.measurements.times_ms["latency"]) == len(server.asked)


def test_latency_counts_from_the_arrival_and_what_is_never_sent_is_told() -> None:
    load, server, _ = run(costs_after(0.1), seconds=0.5, connections=1, rate=100)
    latencies = load.measurements.times_ms["latency"]
    assert len(latencies) == len(server.asked) <= 6
    # Each waits for the ones before it.
    assert latencies[-1] > 300
    assert load.measurements.failures.keys() == {NOT_SENT}
    assert load.measurements.failures[NOT_SENT] > 20
