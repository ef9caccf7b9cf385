"""What a scrape of `/metrics` shows."""

from __future__ import annotations

from ctypes import c_double

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.errors import (
    BackendFailure,
    DeadlinePassed,
    EmptyInput,
    HeadMissing,
    InvalidInput,
    Overloaded,
    PayloadTooLarge,
    ServiceError,
    Unauthorized,
    Unhealthy,
)
from service.observability.metrics import Metrics
from service.observability.shared_values import SharedValues
from service.tasks import (
    Decode,
    Embed,
    EmbedAll,
    EmbedSparse,
    FillMask,
    FillNextMask,
    NextSentence,
    Task,
    Timing,
    Tokenize,
)

TIMING = Timing(tokenization=0.25, queue=0.5, inference=2.0)


def scrape(metrics: Metrics) -> dict[str, float]:
    """Value by series, written as in the text format."""
    body, _ = metrics.render()
    pairs = [line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#")]
    series = {name: float(value) for name, value in pairs}
    assert len(series) == len(pairs)
    return series


def changes(metrics: Metrics) -> dict[str, float]:
    """All series but buckets that are not zero."""
    return {name: value for name, value in scrape(metrics).items() if value and "_bucket" not in name}


def test_every_series_is_there_at_zero_from_the_start() -> None:
    series = scrape(Metrics())
    assert set(series.values()) == {0.0}
    tei = """te_request_count{method="single"} te_request_count{method="batch"} te_request_success{method="single"}
        te_request_success{method="batch"} te_request_failure{err="overloaded"} te_request_failure{err="inference"}
        te_request_failure{err="model_type"} te_request_failure{err="dropped"} te_request_failure{err="validation"}
        te_embed_count te_embed_success te_queue_size te_batch_next_size_sum te_batch_next_tokens_count
        te_request_duration_sum te_request_tokenization_duration_sum te_request_queue_duration_sum
        te_request_inference_duration_sum te_embed_duration_count te_embed_tokenization_duration_count
        te_embed_queue_duration_count te_embed_inference_duration_count te_request_input_length_count"""
    assert set(tei.split()) <= set(series)


def test_the_text_is_in_the_prometheus_format() -> None:
    body, content_type = Metrics().render()
    assert content_type.startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert families["te_request_count"].type == "counter"
    assert families["te_queue_size"].type == "gauge"
    assert families["bert_tasks"].type == "counter"
    bounds = [sample.labels["le"] for sample in families["te_request_duration"].samples if "le" in sample.labels]
    assert len(bounds) == 36
    assert (bounds[0], bounds[1], bounds[-1]) == ("1.5e-05", "2.25e-05", "+Inf")
    assert b"te_request_count_total" not in body
    assert b"_created" not in body


def test_requests() -> None:
    metrics = Metrics()
    metrics.request_received("single")
    metrics.request_received("batch")
    metrics.request_received("batch")
    metrics.request_answered("batch", timing=TIMING, total_seconds=3.0)
    metrics.request_cancelled()
    metrics.request_refused("overloaded")
    assert changes(metrics) == {
        'te_request_count{method="single"}': 1,
        'te_request_count{method="batch"}': 2,
        'te_request_success{method="batch"}': 1,
        "te_request_duration_count": 1,
        "te_request_duration_sum": 3.0,
        "te_request_tokenization_duration_count": 1,
        "te_request_tokenization_duration_sum": 0.25,
        "te_request_queue_duration_count": 1,
        "te_request_queue_duration_sum": 0.5,
        "te_request_inference_duration_count": 1,
        "te_request_inference_duration_sum": 2.0,
        'te_request_failure{err="dropped"}': 1,
        'bert_requests_refused_total{reason="overloaded"}': 1,
    }


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (EmptyInput(""), "validation"),
        (InvalidInput(""), "validation"),
        (PayloadTooLarge(""), "payload_too_large"),
        (Unauthorized(""), "unauthorized"),
        (HeadMissing(""), "model_type"),
        (Overloaded("", retry_after_seconds=1), "overloaded"),
        (Unhealthy(""), "unhealthy"),
        (DeadlinePassed(""), "deadline"),
        (BackendFailure(""), "inference"),
        (ServiceError(""), "internal"),
    ],
)
def test_failures_are_named_by_the_error(error: ServiceError, name: str) -> None:
    metrics = Metrics()
    metrics.request_failed(error)
    assert changes(metrics) == {f'te_request_failure{{err="{name}"}}': 1}


def test_items() -> None:
    metrics = Metrics()
    for task in (Embed(text="a"), Embed(text="b"), FillMask(text="c"), NextSentence(text="d", text_pair="e")):
        metrics.task_submitted(task)
        metrics.task_encoded(tokens=7)
    metrics.task_answered(Embed(text="a"), timing=TIMING, total_seconds=4.0)
    metrics.task_answered(FillMask(text="c"), timing=TIMING, total_seconds=4.0)
    metrics.task_failed()
    metrics.items_dropped("cancelled", items=3)
    metrics.items_dropped("deadline", items=2)
    assert changes(metrics) == {
        'bert_tasks_total{task="embed"}': 2,
        'bert_tasks_total{task="fill_mask"}': 1,
        'bert_tasks_total{task="next_sentence"}': 1,
        "te_request_input_length_count": 4,
        "te_request_input_length_sum": 28,
        "te_embed_count": 2,
        "te_embed_success": 1,
        "te_embed_duration_count": 1,
        "te_embed_duration_sum": 4.0,
        "te_embed_tokenization_duration_count": 1,
        "te_embed_tokenization_duration_sum": 0.25,
        "te_embed_queue_duration_count": 1,
        "te_embed_queue_duration_sum": 0.5,
        "te_embed_inference_duration_count": 1,
        "te_embed_inference_duration_sum": 2.0,
        "bert_items_failed_total": 1,
        'bert_items_dropped_total{reason="cancelled"}': 3,
        'bert_items_dropped_total{reason="deadline"}': 2,
    }


@pytest.mark.parametrize("task", [EmbedAll(text="a"), EmbedSparse(text="a")])
def test_tokens_and_sparse_embeddings_count_as_embeddings_too(task: Task) -> None:
    metrics = Metrics()
    metrics.task_submitted(task)
    metrics.task_answered(task, timing=TIMING, total_seconds=4.0)
    assert changes(metrics).items() >= {"te_embed_count": 1, "te_embed_success": 1, "te_embed_duration_sum": 4}.items()


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (EmbedAll(text="a"), "embed_all"),
        (EmbedSparse(text="a"), "embed_sparse"),
        (FillNextMask(text="a"), "fill_next_mask"),
        (Tokenize(text="a"), "tokenize"),
        (Decode(ids=(1,)), "decode"),
    ],
)
def test_each_kind_of_task_has_a_name(task: Task, name: str) -> None:
    metrics = Metrics()
    metrics.task_submitted(task)
    assert changes(metrics)[f'bert_tasks_total{{task="{name}"}}'] == 1


def test_queue_and_batches() -> None:
    metrics = Metrics()
    metrics.queue_changed(items=5, tokens=60)
    metrics.queue_changed(items=2, tokens=13)
    metrics.batch_started(items=4, tokens=37)
    metrics.batch_finished(compute_seconds=0.125)
    assert changes(metrics) == {
        "te_queue_size": 2,
        "bert_queue_tokens": 13,
        "te_batch_next_size_count": 1,
        "te_batch_next_size_sum": 4,
        "te_batch_next_tokens_count": 1,
        "te_batch_next_tokens_sum": 37,
        "bert_batch_compute_seconds_count": 1,
        "bert_batch_compute_seconds_sum": 0.125,
    }


def test_buckets_include_their_bound_and_add_up() -> None:
    metrics = Metrics()
    for items in (1, 4, 5, 10_000):
        metrics.batch_started(items=items, tokens=1)
    series = scrape(metrics)
    counts = [series[f'te_batch_next_size_bucket{{le="{bound}"}}'] for bound in ("1.0", "2.0", "4.0", "8.0", "4096.0")]
    assert counts == [1, 1, 2, 3, 3]
    assert series['te_batch_next_size_bucket{le="+Inf"}'] == series["te_batch_next_size_count"] == 4


def test_processes_show_the_sums_of_what_all_have_published() -> None:
    memory = (c_double * (3 * Metrics().values_count))()
    one, two, idle = (Metrics(SharedValues(memory=memory, rows=3, own=number)) for number in range(3))
    assert set(scrape(one).values()) == {0.0}
    one.request_received("single")
    one.queue_changed(items=4, tokens=29)
    one.batch_finished(compute_seconds=0.125)
    two.request_received("batch")
    two.request_received("single")
    two.queue_changed(items=3, tokens=11)
    two.batch_finished(compute_seconds=2.0)
    assert changes(idle) == {}
    one.publish()
    two.publish()
    assert changes(idle) == {
        'te_request_count{method="single"}': 2,
        'te_request_count{method="batch"}': 1,
        "te_queue_size": 7,
        "bert_queue_tokens": 40,
        "bert_batch_compute_seconds_count": 2,
        "bert_batch_compute_seconds_sum": 2.125,
    }
    two.queue_changed(items=0, tokens=0)
    assert changes(two)["te_queue_size"] == 4  # a scrape publishes what the process itself has
    assert scrape(one) == scrape(two) == scrape(idle)


def test_two_services_in_a_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.request_received("single")
    assert changes(other) == {}
