"""One line a request, with what an operator asks for and nothing that a user sent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.observability.access_log import log_request
from service.observability.logs import JsonFormatter, PlainFormatter
from service.observability.request_record import RequestRecord, RequestWork
from service.settings import Settings
from service.tasks import Answer, EmbedResult, PassRecord, Timing
from tests.service.fake_engine import FakeEngine, fake_vector
from tests.service.serving import serving, wait_until

LOGGER = "service.observability.access_log"
SECRET = "diary"

COST = {"tokenization_ms", "queue_ms", "inference_ms", "compute_tokens"}
FIELDS = {"method", "path", "status", "request_id", "client", "total_ms"}


def answer(*, tokens: int) -> Answer:
    return Answer(
        result=EmbedResult(vector=fake_vector(["a"]), tokens=tokens, truncated=False),
        timing=Timing(tokenization=0.001, queue=0.002, inference=0.125),
        compute_tokens=tokens,
        passes=(PassRecord(items=3, tokens=41, started=7.5, finished=7.625),),
    )


def test_the_two_forms_of_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    answers = [answer(tokens=13), answer(tokens=5)]
    log_request(
        RequestRecord(
            method="POST",
            route="/embed",
            status=200,
            request_id="abc",
            client="team-a",
            started=7.25,
            finished=7.6875,
            work=RequestWork(submitted=7.375, timing=answers[0].timing, answers=answers),
        )
    )
    [record] = caplog.records
    fields = orjson.loads(JsonFormatter().format(record))
    assert fields.pop("timestamp")
    assert fields == {
        "level": "INFO",
        "logger": LOGGER,
        "message": "request",
        "method": "POST",
        "path": "/embed",
        "status": 200,
        "request_id": "abc",
        "client": "team-a",
        "total_ms": 437.5,
        "tokenization_ms": 1.0,
        "queue_ms": 2.0,
        "inference_ms": 125.0,
        "compute_tokens": 18,
    }
    assert PlainFormatter().format(record).partition(" INFO ")[2] == (
        f"{LOGGER}: request method=POST path=/embed status=200 request_id=abc client=team-a total_ms=437.5 "
        "tokenization_ms=1.0 queue_ms=2.0 inference_ms=125.0 compute_tokens=18"
    )


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of all access lines so far."""
    records = [record for record in caplog.records if record.name == LOGGER]
    return [{name: vars(record)[name] for name in (FIELDS | COST) & vars(record).keys()} for record in records]


@contextmanager
def served(caplog: pytest.LogCaptureFixture, **settings: object) -> Iterator[TestClient]:
    caplog.set_level(logging.INFO, LOGGER)
    with serving(None, **settings) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "/embed?secret=diary", {"inputs": ["a diary", "b"]}, ("/embed", 200)),
        ("POST", "/embed", {"inputs": ""}, ("/embed", 400)),
        ("POST", "/fill-mask", {"inputs": SECRET}, ("/fill-mask", 422)),
        ("POST", f"/{SECRET}", {}, ("unknown", 404)),
        ("PUT", "/embed", {}, ("/embed", 405)),
        ("GET", f"/static/{SECRET}", None, ("/static", 404)),
    ],
)
def test_every_answer_has_its_line(
    method: str, path: str, body: object, expected: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"x-request-id": "abc", "x-secret": SECRET}
    with served(caplog) as client:
        client.request(method, path, json=body, headers=headers)
    [fields] = logged(caplog)
    assert (fields["path"], fields["status"]) == expected
    assert (fields["method"], fields["request_id"], fields["client"]) == (method, "abc", "testclient")
    assert fields["total_ms"] > 0
    assert fields.keys() == (FIELDS | COST if fields["status"] == 200 else FIELDS)
    if fields["status"] == 200:
        assert fields["compute_tokens"] == 3
        assert 0 < fields["inference_ms"] < fields["total_ms"]
    assert SECRET not in caplog.text + str(fields)


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready", "/metrics"])
def test_probes_are_logged_for_debugging_alone(path: str, caplog: pytest.LogCaptureFixture) -> None:
    with served(caplog) as client:
        client.get(path)
        assert logged(caplog) == []
        caplog.set_level(logging.DEBUG, LOGGER)
        client.get(path)
        assert [fields["path"] for fields in logged(caplog)] == [path]


def test_the_lines_can_be_turned_off(caplog: pytest.LogCaptureFixture) -> None:
    with served(caplog, access_log=False) as client:
        client.post("/embed", json={"inputs": "a"})
    assert logged(caplog) == []


def test_the_client_of_a_line_is_the_owner_of_the_key(
    caplog: pytest.LogCaptureFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("team-a:sesame\n")
    with served(caplog, api_key="single", api_key_file=str(keys)) as client:
        for key in ("sesame", "single", "wrong"):
            client.post("/embed", json={"inputs": "a"}, headers={"authorization": f"Bearer {key}"})
    lines = [(fields["path"], fields["status"], fields["client"]) for fields in logged(caplog)]
    assert lines == [("/embed", 200, "team-a"), ("/embed", 200, "testclient"), ("/embed", 401, "testclient")]


def test_an_address_that_is_none_cannot_forge_a_field(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    app = create_app(Settings.model_validate({"trusted_proxies": "10.0.0.0/8"}), FakeEngine())
    with TestClient(app, client=("10.0.0.9", 999)) as client:
        wait_until(lambda: app.state.lifecycle.unready_reason() is None)
        client.post("/embed", json={"inputs": "a"}, headers={"x-forwarded-for": "me status=500"})
    assert [fields["client"] for fields in logged(caplog)] == ["unknown"]
