from __future__ import annotations

import asyncio
import threading

import pytest
from fastapi import FastAPI

from service.app import create_app
from service.settings import Settings
from service.tasks import Embed
from tests.service.fake_engine import PATIENCE_SECONDS, FakeEngine, texts_of
from tests.service.serving import DISCONNECT, JSON, Exchange, body_part, running, serving, until

TIME_HEADERS = ("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time")


@pytest.mark.parametrize(
    ("path", "body", "tokens", "characters", "truncated"),
    [
        ("/embed", {"inputs": "a bc"}, 2, 4, 0),
        ("/embed", {"inputs": ["a bc", "w " * 14, [101, 7, 102]]}, 2 + 13 + 3, 4 + 28, 1),
        ("/fill-mask", {"inputs": ["[MASK] a", "[MASK] bcd e"]}, 5, 8 + 12, 0),
        ("/fill-mask", {"inputs": ["[MASK] a", ""], "details": True}, 2, 8, 0),
        ("/next-sentence", {"inputs": ["a", "b cd"]}, 3, 5, 0),
        ("/next-sentence", {"text": "ab", "candidates": ["c", "d e"]}, 5, 2 + 1 + 2 + 3, 0),
    ],
)
def test_answers_tell_their_cost(path: str, body: object, tokens: int, characters: int, truncated: int) -> None:
    with serving() as client:
        headers = client.post(path, json=body).headers
    assert headers["content-type"] == "application/json"
    assert headers["x-compute-tokens"] == str(tokens)
    assert headers["x-compute-characters"] == str(characters)
    assert headers["x-truncated"] == str(truncated)
    times = {name: float(headers[name]) for name in TIME_HEADERS}
    assert all(time >= 0 for time in times.values())
    assert 0 < times["x-inference-time"] < times["x-total-time"] < PATIENCE_SECONDS * 1000


def test_requests_are_counted_by_form_and_outcome() -> None:
    with serving() as client:
        for inputs in ("a", ["a"], ["a", "b"], ""):
            client.post("/embed", json={"inputs": inputs})
        client.post("/embed", content=b"no")
        text = client.get("/metrics").text
    for line in (
        'te_request_count{method="single"} 2.0',
        'te_request_count{method="batch"} 2.0',
        'te_request_success{method="single"} 1.0',
        'te_request_success{method="batch"} 2.0',
        'te_request_failure{err="validation"} 1.0',
        "te_request_duration_count 3.0",
    ):
        assert line in text.splitlines()


@pytest.mark.parametrize("timeout", ["0", "-1", "1.5", "soon", "", "9" * 16, "١"])
def test_a_bad_timeout_is_refused(timeout: str) -> None:
    with serving() as client:
        headers = {b"x-request-timeout-ms": timeout.encode()}
        answer = client.post("/embed", json={"inputs": "a"}, headers=headers)
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "x-request-timeout-ms: must be a whole number of milliseconds from 1",
        "error_type": "Validation",
    }


def test_space_around_a_timeout_is_no_part_of_it() -> None:
    with serving() as client:
        answer = client.post("/embed", json={"inputs": "a"}, headers={b"x-request-timeout-ms": b" 9000\t "})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("setting_seconds", "headers"),
    [(30, {"x-request-timeout-ms": "20"}), (0.02, {}), (0.02, {"x-request-timeout-ms": "60000"})],
)
def test_a_deadline_that_passes_in_the_queue_is_a_timeout(setting_seconds: float, headers: dict[str, str]) -> None:
    engine = FakeEngine()

    async def run() -> int:
        app = create_app(Settings(request_timeout_seconds=setting_seconds), engine)
        async with running(app):
            engine.gate.clear()
            running_pass = asyncio.create_task(_post(app, "a"))
            await until(engine.entered.is_set)
            waiting = asyncio.create_task(_post(app, "b", headers=headers))
            await until(lambda: Embed(text="b", truncate="right") in engine.asked)
            await asyncio.sleep(0.03)
            engine.gate.set()
            await running_pass
            return await waiting

    assert asyncio.run(run()) == 504
    assert texts_of(engine.passed) == ["a"]


async def _post(app: FastAPI, text: str, *, headers: dict[str, str] | None = None) -> int:
    body = b'{"inputs": "%s"}' % text.encode()
    made = Exchange(app=app, path="/embed", messages=[body_part(body)], headers={**JSON, **(headers or {})})
    return await made.run()


def test_a_full_queue_refuses_before_the_body_is_read() -> None:
    engine = FakeEngine()

    async def run() -> tuple[Exchange, int]:
        app = create_app(Settings(max_concurrent_requests=2), engine)
        async with running(app):
            engine.gate.clear()
            accepted = [asyncio.create_task(_post(app, text)) for text in ("a", "b")]
            await until(lambda: len(engine.asked) == 2)
            refused = Exchange(app=app, path="/embed", messages=[body_part(b'{"inputs": "c"}')], headers=JSON)
            await refused.run()
            engine.gate.set()
            assert await asyncio.gather(*accepted) == [200, 200]
            return refused, await _post(app, "c")

    refused, afterwards = asyncio.run(run())
    assert (refused.status, refused.received) == (429, 0)
    assert refused.body == b'{"error":"the queue is full","error_type":"Overloaded"}'
    assert afterwards == 200


@pytest.mark.parametrize("inputs", ["a", ["a"]])
def test_a_text_and_a_list_of_one_are_refused_alike_with_a_time_to_come_back(inputs: object) -> None:
    engine = FakeEngine()
    with serving(engine, max_concurrent_requests=1) as client:
        engine.gate.clear()
        blocker = threading.Thread(target=client.post, args=["/embed"], kwargs={"json": {"inputs": "a"}})
        blocker.start()
        assert engine.entered.wait(PATIENCE_SECONDS)
        answer = client.post("/embed", json={"inputs": inputs})
        engine.gate.set()
        blocker.join()
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 60


def test_a_fault_keeps_the_neighbours_from_running_unless_each_is_answered_by_itself() -> None:
    engine = FakeEngine()
    body = {"inputs": ["[MASK] a", "no", "[MASK] b"]}
    with serving(engine) as client:
        refused = client.post("/fill-mask", json=body)
        assert (refused.status_code, engine.passed) == (422, [])
        assert texts_of(engine.asked) == ["[MASK] a", "no"]
        detailed = client.post("/fill-mask", json={**body, "details": True})
    assert [result.get("tokens") for result in detailed.json()["results"]] == [2, None, 2]
    assert texts_of(engine.passed) == ["[MASK] a", "[MASK] b"]


def test_what_could_never_fit_is_too_large_not_overloaded() -> None:
    with serving(max_concurrent_requests=2) as client:
        answer = client.post("/embed", json={"inputs": ["a", "b", "c"]})
    assert answer.status_code == 413
    assert answer.json()["error_type"] == "PayloadTooLarge"


def test_a_client_that_leaves_gives_up_its_place_in_the_queue() -> None:
    engine = FakeEngine()

    async def run() -> int:
        app = create_app(Settings(), engine)
        async with running(app):
            engine.gate.clear()
            first = asyncio.create_task(_post(app, "a"))
            await until(engine.entered.is_set)
            gone = Exchange(app=app, path="/embed", messages=[body_part(b'{"inputs": "b"}'), DISCONNECT], headers=JSON)
            status = await gone.run()
            engine.gate.set()
            assert await first == 200
            return status

    assert asyncio.run(run()) == 499
    assert texts_of(engine.passed) == ["a"]
