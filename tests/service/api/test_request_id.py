from __future__ import annotations

import logging
import re
from typing import cast

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from service.api.request_id import RequestIdMiddleware, RequestRecords
from service.api.request_scope import RouteNames
from service.observability.metrics import Metrics
from service.observability.request_record import RequestRecord
from tests.service.serving import serving


@pytest.mark.parametrize("path", ["/health/live", "/no-such-route", "/info"])
def test_a_sane_id_comes_back(path: str) -> None:
    with serving() as client:
        answer = client.get(path, headers={"x-request-id": "abc-1.2:3_4"})
    assert answer.headers["x-request-id"] == "abc-1.2:3_4"


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 129, 'a"b', "ü", "<script>"])
def test_any_other_is_replaced_by_a_new_one(given: str | None) -> None:
    headers = {} if given is None else {b"x-request-id": given.encode()}
    with serving() as client:
        ids = {client.get("/health/live", headers=headers).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", request_id) for request_id in ids)


def test_a_fault_of_ours_is_a_500_that_says_nothing_and_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError("secret")

    with serving() as client:
        monkeypatch.setattr(cast(FastAPI, client.app).state.lifecycle, "check_admission", fail)
        answer = client.post("/embed", json={"inputs": "a"}, headers={"x-request-id": "abc"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "abc"
    assert answer.json() == {
        "error": "internal error; the log holds its cause under this request's id",
        "error_type": "Backend",
    }
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert vars(record)["request_id"] == "abc"
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_a_fault_within_an_answer_breaks_it_off() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    metrics = Metrics()
    records: list[RequestRecord] = []
    written = RequestRecords(RouteNames([]), observers=[records.append])
    with pytest.raises(ZeroDivisionError):
        TestClient(RequestIdMiddleware(app, records=written, metrics=metrics)).get("/")
    [record] = records
    assert (record.status, record.method, record.route) == (200, "GET", None)
    assert record.started < record.finished
    assert b'te_request_failure{err="internal"} 1.0\n' in metrics.render()[0]
