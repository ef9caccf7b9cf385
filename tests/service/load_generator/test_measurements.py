from __future__ import annotations

import pytest

from service.load_generator.http_client import Answer
from service.load_generator.measurements import Measurements, failure_of, message_of, percentiles
from service.load_generator.report import table


def test_percentiles_are_by_nearest_rank() -> None:
    values = [float(value) for value in range(200, 0, -1)]
    assert percentiles(values) == {"p50": 100.0, "p90": 180.0, "p95": 190.0, "p99": 198.0, "max": 200.0}
    assert set(percentiles([7.0]).values()) == {7.0}


def test_the_summary_counts_answers_and_times_apart() -> None:
    measured = Measurements()
    answer = Answer(status=200, headers={b"x-compute-tokens": b"13", b"x-queue-time": b"1.5"})
    for seconds in (0.001, 0.003, 0.002):
        measured.time(answer, seconds=seconds)
    measured.count(answer, texts=5)
    measured.count(Answer(status=200), texts=5)
    measured.failures["429 Overloaded"] += 2
    summary = measured.summary(seconds=4.0)
    times = summary.pop("times_ms")
    assert summary == {
        "seconds": 4.0,
        "requests": 2,
        "requests_per_second": 0.5,
        "texts": 10,
        "texts_per_second": 2.5,
        "tokens": 13,
        "tokens_per_second": 3.25,
        "failures": {"429 Overloaded": 2},
    }
    assert times.keys() == {"latency", "server_queue"}
    assert times["latency"]["p50"] == pytest.approx(2.0)
    assert times["server_queue"]["max"] == 1.5
    lines = table(measured.summary(seconds=4.0)).splitlines()
    assert lines[2].split() == ["texts", "10", "2.5"]
    assert lines[6].split() == ["latency", "2.00", "3.00", "3.00", "3.00", "3.00"]
    assert lines[-2].split() == ["failed", "2"]
    assert lines[-1].split() == ["429", "Overloaded", "2"]


@pytest.mark.parametrize(
    ("body", "failure", "message"),
    [
        (b'{"error": "the queue is full", "error_type": "Overloaded"}', "503 Overloaded", "the queue is full"),
        (b'{"error": {"message": "no"}}', "503", '{"error": {"message": "no"}}'),
        (b"[]", "503", "[]"),
        (b"<html>\xff", "503", "<html>\ufffd"),
        (b"", "503", ""),
    ],
)
def test_failures_are_told_in_the_servers_words(body: bytes, failure: str, message: str) -> None:
    answer = Answer(status=503, body=bytearray(body))
    assert failure_of(answer) == failure
    assert message_of(answer) == message
