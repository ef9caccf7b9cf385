from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from starlette.types import Message

from service.app import create_app
from service.settings import Settings
from tests.service.fake_engine import PATIENCE_SECONDS, FakeEngine
from tests.service.serving import DISCONNECT, JSON, Exchange, body_part, running, serving, until

BODY = b'{"inputs": "a b"}'


def exchange(messages: Sequence[Message], *, headers: dict[str, str] | None = None) -> Exchange:
    async def run() -> Exchange:
        app = create_app(Settings(payload_limit=len(BODY)), FakeEngine())
        async with running(app):
            made = Exchange(app=app, path="/embed", messages=messages, headers={**JSON, **(headers or {})})
            await made.run()
            return made

    return asyncio.run(run())


@pytest.mark.parametrize(
    "messages",
    [
        [body_part(BODY)],
        [body_part(BODY[:5], more=True), body_part(b"", more=True), body_part(BODY[5:])],
        [body_part(BODY, more=True), {"type": "http.request"}],
    ],
)
def test_a_body_of_the_longest_length_may_come_in_parts(messages: Sequence[Message]) -> None:
    assert exchange(messages).status == 200


def test_a_body_of_the_longest_length_may_be_announced() -> None:
    assert exchange([body_part(BODY)], headers={"content-length": str(len(BODY))}).status == 200


def test_a_body_that_announces_to_be_too_long_is_not_read() -> None:
    refused = exchange([body_part(BODY + b" ")], headers={"content-length": str(len(BODY) + 1)})
    assert (refused.status, refused.received) == (413, 0)
    assert refused.body == (
        b'{"error":"the body is over the limit of 17 bytes (payload_limit)","error_type":"PayloadTooLarge"}'
    )


def test_a_body_without_announced_length_is_refused_while_it_is_read() -> None:
    parts = [body_part(BODY, more=True), body_part(b" ", more=True), body_part(b" " * 99)]
    refused = exchange(parts)
    assert (refused.status, refused.received) == (413, 2)


def test_a_body_that_does_not_end_by_the_deadline_is_a_timeout() -> None:
    late = exchange([body_part(BODY[:5], more=True)], headers={"x-request-timeout-ms": "20"})
    assert (late.status, late.received) == (504, 1)
    assert late.body == b'{"error":"the deadline passed before the whole body had come","error_type":"Timeout"}'


def test_a_shutdown_does_not_wait_for_the_rest_of_a_body() -> None:
    async def run() -> Exchange:
        app = create_app(Settings(), FakeEngine())
        async with running(app):
            half = Exchange(app=app, path="/embed", messages=[body_part(BODY[:5], more=True)], headers=JSON)
            reading = asyncio.create_task(half.run())
            await until(lambda: half.received == 1)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await app.state.lifecycle.drain(timeout_seconds=PATIENCE_SECONDS)
                await reading
        return half

    half = asyncio.run(run())
    assert half.status == 503
    assert half.body == b'{"error":"the service is shutting down","error_type":"Unhealthy"}'


def test_a_client_that_leaves_within_its_body_ends_the_request() -> None:
    assert exchange([body_part(BODY[:5], more=True), DISCONNECT]).status == 499


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
        ("application/x-www-form-urlencoded", 415),
        ("text/plain", 415),
        ("application/jsonp", 415),
        (None, 415),
    ],
)
def test_the_content_type_must_be_json(content_type: str | None, status: int) -> None:
    with serving() as client:
        headers = {} if content_type is None else {"content-type": content_type}
        answer = client.post("/embed", content=BODY, headers=headers)
    assert answer.status_code == status
    if status == 415:
        assert answer.json() == {
            "error": "the content type must be application/json",
            "error_type": "UnsupportedMediaType",
        }


@pytest.mark.parametrize(("coding", "status"), [("identity", 200), ("Identity", 200), ("gzip", 415), ("br, gzip", 415)])
def test_a_compressed_body_is_refused_in_words(coding: str, status: int) -> None:
    with serving() as client:
        answer = client.post("/embed", content=BODY, headers={**JSON, "content-encoding": coding})
    assert answer.status_code == status
    if status == 415:
        assert answer.json() == {
            "error": "the body must not be compressed; send it without Content-Encoding",
            "error_type": "UnsupportedMediaType",
        }
