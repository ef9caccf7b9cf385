"""Spans as a collector gets them."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from service.observability.request_record import RequestRecord, RequestWork
from service.observability.tracing import FLUSH_SECONDS, MOST_PASS_SPANS, Tracing
from service.tasks import Answer, EmbedResult, PassRecord, Timing
from tests.service.fake_engine import PATIENCE_SECONDS, fake_vector
from tests.service.observability.collector import attributes, collecting
from tests.service.server_process import ROOT, embed, requests_received, server
from tests.service.serving import serving, wait_until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "diary"


@pytest.mark.parametrize("suffix", ["", "/", "/v1/traces"])
def test_a_request_continues_the_trace_that_it_came_with(suffix: str) -> None:
    before = time.time_ns()
    with collecting() as collector, serving(otlp_endpoint=collector.url + suffix, otlp_service_name="bert-7") as client:
        headers = {"traceparent": TRACEPARENT, "tracestate": "v=1", "x-request-id": "abc", "x-secret": SECRET}
        client.post("/embed?secret=diary", json={"inputs": ["a diary", "b"]}, headers=headers)
        client.get("/health/ready")
        client.get("/metrics")
    after = time.time_ns()
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.service["service.name"] == "bert-7"
    [span] = collector.named("POST /embed")
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state) == (TRACE, PARENT, "v=1")
    assert span.kind == Span.SPAN_KIND_SERVER
    assert span.status.code == Status.STATUS_CODE_UNSET
    assert attributes(span) == {
        "http.request.method": "POST",
        "http.route": "/embed",
        "http.response.status_code": 200,
        "bert.request_id": "abc",
        "bert.client": "testclient",
        "bert.items": 2,
        "bert.compute_tokens": 3,
        "bert.passes": 1,
    }
    children = collector.children(span)
    assert [child.name for child in children] == ["tokenization", "queue", "pass"]
    assert len(collector.spans) == 4
    assert attributes(children[-1]) == {"bert.batch.items": 2, "bert.batch.tokens": 3}
    times = [before, span.start_time_unix_nano, children[0].start_time_unix_nano]
    for one, following in itertools.pairwise(children):
        assert one.end_time_unix_nano == following.start_time_unix_nano
    times += [*(child.end_time_unix_nano for child in children), span.end_time_unix_nano, after]
    assert times == sorted(times)
    assert SECRET not in str(collector.spans)


@pytest.mark.parametrize("state", [f"my {SECRET}", f"a=1,{SECRET}", f"{SECRET}=" + "x" * 600, f"a={SECRET}=b"])
def test_a_state_that_is_none_is_in_no_log_and_no_trace(state: str, caplog: pytest.LogCaptureFixture) -> None:
    with collecting() as collector, serving(otlp_endpoint=collector.url) as client:
        client.post("/embed", json={"inputs": "a"}, headers={"traceparent": TRACEPARENT, "tracestate": state})
    [span] = collector.named("POST /embed")
    assert (span.trace_id.hex(), span.trace_state) == (TRACE, "")
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("path", "status", "name", "code"),
    [
        ("/embed", 422, "POST /embed", Status.STATUS_CODE_UNSET),
        ("/fill-mask", 500, "POST /fill-mask", Status.STATUS_CODE_ERROR),
        (f"/{SECRET}", 404, "POST", Status.STATUS_CODE_UNSET),
    ],
)
def test_a_failure_has_a_span_of_its_own_trace(path: str, status: int, name: str, code: int) -> None:
    body = {"inputs": "[MASK] boom"} if status == 500 else {"inputs": 7}
    with collecting() as collector, serving(otlp_endpoint=collector.url) as client:
        assert client.post(path, json=body, headers={"traceparent": "00-no-no-01"}).status_code == status
    [span] = collector.spans
    assert (span.name, span.status.code, span.parent_span_id) == (name, code, b"")
    assert attributes(span)["http.response.status_code"] == status
    assert SECRET not in str(span)


def answered(passes: int) -> RequestRecord:
    """A request whose items went through so many passes, the later ones first, and each of two items."""
    records = [PassRecord(items=2, tokens=40 + i, started=7.0 + i, finished=7.5 + i) for i in range(passes)]
    answers = [
        Answer(
            result=EmbedResult(vector=fake_vector(["a"]), tokens=20, truncated=False),
            timing=Timing(tokenization=0.25, queue=each.started - 6.75, inference=0.5),
            compute_tokens=20,
            passes=(each,),
        )
        for each in reversed(records)
        for _ in range(2)
    ]
    return RequestRecord(
        method="POST",
        request_id="abc",
        client="me",
        route="/embed",
        started=6.25,
        finished=99.0,
        status=200,
        work=RequestWork(submitted=6.5, timing=answers[0].timing, answers=answers),
    )


@pytest.mark.parametrize("passes", [1, 3, MOST_PASS_SPANS + 7])
def test_each_pass_of_a_request_has_a_span_to_a_limit(passes: int) -> None:
    with collecting() as collector:
        tracing = Tracing(endpoint=collector.url, service_name="x", version="1")
        tracing.record(answered(passes))
        asyncio.run(tracing.close())
    [span] = collector.named("POST /embed")
    tokenization, queue, *shown = collector.children(span)
    assert [(attributes(each)["bert.batch.items"], attributes(each)["bert.batch.tokens"]) for each in shown] == [
        (2, 40 + i) for i in range(min(passes, MOST_PASS_SPANS))
    ]
    assert (attributes(span)["bert.passes"], attributes(span)["bert.compute_tokens"]) == (passes, 40 * passes)
    times = [each.end_time_unix_nano - each.start_time_unix_nano for each in (tokenization, queue, shown[-1])]
    assert times == [250_000_000, 250_000_000, 500_000_000]


def test_a_request_without_a_pass_has_no_wait() -> None:
    record = answered(1)
    assert record.work is not None
    record.work = replace(record.work, answers=[replace(answer, passes=()) for answer in record.work.answers])
    with collecting() as collector:
        tracing = Tracing(endpoint=collector.url, service_name="x", version="1")
        tracing.record(record)
        asyncio.run(tracing.close())
    [span] = collector.named("POST /embed")
    assert [stage.name for stage in collector.children(span)] == ["tokenization"]


def test_a_process_that_ends_sends_its_spans_first(tmp_path: Path) -> None:
    with (
        collecting() as collector,
        server(tmp_path / "log", "--otlp-endpoint", collector.url, pass_seconds=0.1) as (process, url),
        ThreadPoolExecutor(3) as threads,
    ):
        answers = [threads.submit(embed, url) for _ in range(3)]
        wait_until(lambda: requests_received(url) == 3)
        process.send_signal(signal.SIGTERM)
        assert [answer.result().status_code for answer in answers] == [200] * 3
        assert process.wait(PATIENCE_SECONDS) == 0
    assert len(collector.named("POST /embed")) == len(collector.named("pass")) == 3
    assert {attributes(span)["bert.batch.tokens"] for span in collector.named("pass")} == {13}


def test_a_collector_that_never_answers_holds_up_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with server(tmp_path / "log", "--otlp-endpoint", endpoint) as (process, url):
            assert embed(url).status_code == 200
            process.send_signal(signal.SIGTERM)
            started = time.monotonic()
            assert process.wait(FLUSH_SECONDS + PATIENCE_SECONDS) == 0
            assert time.monotonic() - started > FLUSH_SECONDS - 1  # it has tried


def test_without_a_collector_nothing_of_opentelemetrys_sdk_is_loaded() -> None:
    code = (
        "import sys; from service.app import create_app; from service.settings import Settings; "
        "create_app(Settings()); print(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
