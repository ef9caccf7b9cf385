"""What the service counts and times, in Prometheus form.

Names, labels and buckets are those of Text Embeddings Inference (TEI) where it has the quantity (`te_*`), so that its
dashboards work; the rest is `bert_*`. Every series exists from the start: all label sets are closed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from service.errors import (
    BackendFailure,
    DeadlinePassed,
    HeadMissing,
    Overloaded,
    PayloadTooLarge,
    RequestError,
    ServiceError,
    Unauthorized,
    Unhealthy,
)
from service.observability.instruments import CounterFamily, Gauge, Histogram, Instruments, SingleCounter
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

RequestMethod: TypeAlias = Literal["single", "batch"]
"""TEI's words for a request with one text and for one with a list, of whatever length."""

RefusalReason: TypeAlias = Literal["overloaded", "payload_too_large", "unhealthy"]
DropReason: TypeAlias = Literal["cancelled", "deadline", "unhealthy"]

_METHODS = ("single", "batch")
_REFUSALS = ("overloaded", "payload_too_large", "unhealthy")
_DROPS = ("cancelled", "deadline", "unhealthy")
_TASK_NAMES: tuple[tuple[type[Task], str], ...] = (
    (FillMask, "fill_mask"),
    (NextSentence, "next_sentence"),
    (Embed, "embed"),
    (EmbedAll, "embed_all"),
    (EmbedSparse, "embed_sparse"),
    (FillNextMask, "fill_next_mask"),
    (Tokenize, "tokenize"),
    (Decode, "decode"),
)
# TEI counts all of them as one.
_EMBEDDING_TASKS = (Embed, EmbedAll, EmbedSparse)
# From the special to the general: the first class that an error is an instance of names its failure.
_FAILURE_NAMES: tuple[tuple[type[ServiceError], str], ...] = (
    (PayloadTooLarge, "payload_too_large"),
    (Unauthorized, "unauthorized"),
    (HeadMissing, "model_type"),
    (RequestError, "validation"),
    (Overloaded, "overloaded"),
    (Unhealthy, "unhealthy"),
    (DeadlinePassed, "deadline"),
    (BackendFailure, "inference"),
    (ServiceError, "internal"),
)
_DROPPED = "dropped"

_DURATION_BOUNDS_SECONDS = tuple(float(f"{0.00001 * 1.5**exponent:.6g}") for exponent in range(1, 36))
_TOKEN_BOUNDS = tuple(2.0**exponent for exponent in range(21))
_INPUT_TOKEN_BOUNDS = _TOKEN_BOUNDS[:15]
_ITEM_BOUNDS = _TOKEN_BOUNDS[:13]

# TEI's counters have no `_total`, which the text format of `prometheus_client` puts after every counter.
_TEI_COUNTER = re.compile(rb"^((?:# (?:HELP|TYPE) )?te_[a-z_]+)_total\b", re.MULTILINE)


class Metrics:
    """The metrics of one service, in a registry of their own. Methods are events and are called on the event loop.

    Args:
        shared: if the service has several processes, where they all publish what they have counted.
    """

    def __init__(self, shared: SharedValues | None = None) -> None:
        self._instruments = Instruments(shared)
        self._registry = CollectorRegistry()
        self._registry.register(self._instruments)
        self._make_request_metrics()
        self._make_item_metrics()
        self._make_queue_metrics()

    def _make_request_metrics(self) -> None:
        failures = (*(name for _, name in _FAILURE_NAMES), _DROPPED)
        self._requests = self._counters(
            "te_request_count", "Requests with a good body, taken on or not", "method", _METHODS
        )
        self._successes = self._counters("te_request_success", "Requests answered", "method", _METHODS)
        self._failures = self._counters("te_request_failure", "Requests failed", "err", failures)
        self._refused = self._counters("bert_requests_refused", "Requests not taken on", "reason", _REFUSALS)
        self._request_duration = self._seconds("te_request_duration", "Whole time of an answered request")
        self._request_tokenization = self._seconds("te_request_tokenization_duration", "Tokenization of a request")
        self._request_queue = self._seconds("te_request_queue_duration", "Wait of a request for its pass")
        self._request_inference = self._seconds("te_request_inference_duration", "Pass of a request")

    def _make_item_metrics(self) -> None:
        names = [name for _, name in _TASK_NAMES]
        self._tasks = self._counters("bert_tasks", "Texts, pairs and steps submitted", "task", names)
        self._tasks_by_type = {task_type: self._tasks[name] for task_type, name in _TASK_NAMES}
        self._dropped = self._counters("bert_items_dropped", "Items that had no pass", "reason", _DROPS)
        self._failed_items = self._counter("bert_items_failed", "Items whose pass failed")
        self._input_length = self._histogram("te_request_input_length", "Tokens of an item", _INPUT_TOKEN_BOUNDS)
        self._embed_count = self._counter("te_embed_count", "Texts submitted for embedding")
        self._embed_success = self._counter("te_embed_success", "Texts embedded")
        self._embed_duration = self._seconds("te_embed_duration", "Whole time of an embedded text")
        self._embed_tokenization = self._seconds("te_embed_tokenization_duration", "Tokenization of an embedded text")
        self._embed_queue = self._seconds("te_embed_queue_duration", "Wait of an embedded text for its pass")
        self._embed_inference = self._seconds("te_embed_inference_duration", "Pass of an embedded text")

    def _make_queue_metrics(self) -> None:
        self._queue_items = self._gauge("te_queue_size", "Items that wait for a pass")
        self._queue_tokens = self._gauge("bert_queue_tokens", "Tokens that wait for a pass")
        self._batch_items = self._histogram("te_batch_next_size", "Items of a pass", _ITEM_BOUNDS)
        self._batch_tokens = self._histogram("te_batch_next_tokens", "Tokens of a pass", _TOKEN_BOUNDS)
        self._compute = self._seconds(
            "bert_batch_compute_seconds", "Pass on a model thread; the sum is the busy time of all"
        )

    def _counter(self, name: str, documentation: str) -> SingleCounter:
        return self._instruments.add(SingleCounter(name, documentation))

    def _counters(self, name: str, documentation: str, label: str, values: Sequence[str]) -> CounterFamily:
        return self._instruments.add(CounterFamily(name, documentation, label=label, label_values=values))

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return self._instruments.add(Gauge(name, documentation))

    def _histogram(self, name: str, documentation: str, bounds: Sequence[float]) -> Histogram:
        return self._instruments.add(Histogram(name, documentation, bounds=bounds))

    def _seconds(self, name: str, documentation: str) -> Histogram:
        return self._histogram(name, f"{documentation}, in seconds", _DURATION_BOUNDS_SECONDS)

    def request_received(self, method: RequestMethod) -> None:
        self._requests[method].value += 1

    def request_answered(self, method: RequestMethod, *, timing: Timing, total_seconds: float) -> None:
        self._successes[method].value += 1
        self._request_duration.observe(total_seconds)
        self._request_tokenization.observe(timing.tokenization)
        self._request_queue.observe(timing.queue)
        self._request_inference.observe(timing.inference)

    def request_failed(self, error: ServiceError) -> None:
        name = next(name for error_type, name in _FAILURE_NAMES if isinstance(error, error_type))
        self._failures[name].value += 1

    def request_cancelled(self) -> None:
        """The client went away before its answer."""
        self._failures[_DROPPED].value += 1

    def request_refused(self, reason: RefusalReason) -> None:
        """The queue did not take the request; `request_failed` counts it as well, where it is answered."""
        self._refused[reason].value += 1

    def task_submitted(self, task: Task) -> None:
        self._tasks_by_type[type(task)].value += 1
        if isinstance(task, _EMBEDDING_TASKS):
            self._embed_count.value += 1

    def task_encoded(self, *, tokens: int) -> None:
        self._input_length.observe(tokens)

    def task_answered(self, task: Task, *, timing: Timing, total_seconds: float) -> None:
        if isinstance(task, _EMBEDDING_TASKS):
            self._embed_success.value += 1
            self._embed_duration.observe(total_seconds)
            self._embed_tokenization.observe(timing.tokenization)
            self._embed_queue.observe(timing.queue)
            self._embed_inference.observe(timing.inference)

    def task_failed(self) -> None:
        self._failed_items.value += 1

    def items_dropped(self, reason: DropReason, *, items: int) -> None:
        self._dropped[reason].value += items

    def queue_changed(self, *, items: int, tokens: int) -> None:
        self._queue_items.value = items
        self._queue_tokens.value = tokens

    def batch_started(self, *, items: int, tokens: int) -> None:
        self._batch_items.observe(items)
        self._batch_tokens.observe(tokens)

    def batch_finished(self, *, compute_seconds: float) -> None:
        self._compute.observe(compute_seconds)

    @property
    def values_count(self) -> int:
        """How many values one process publishes."""
        return len(self._instruments.values())

    def publish(self) -> None:
        """Let the other processes of the service see what this one has counted."""
        self._instruments.publish()

    def render(self) -> tuple[bytes, str]:
        """All series, summed over the processes, in the Prometheus text format, and its content type."""
        encode, content_type = choose_encoder("")
        return _TEI_COUNTER.sub(rb"\1", encode(self._registry)), content_type
