"""OpenTelemetry traces, sent to a collector by OTLP over HTTP. Needs the extra `otel`; nothing else imports this.

A request's spans are made when it has been answered, from the times that its record and its answers hold anyway:

    POST /embed           the request, under the span that its `traceparent` names
    ├── tokenization
    ├── queue             from the end of tokenization to the first pass
    └── pass              one for each pass that its items went through, with the size of the whole pass
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import TypeAlias

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from service.observability.request_record import PROBES, RequestRecord, RequestWork

TRACES_PATH = "/v1/traces"

# For one request of thousands of texts; the request's span tells how many passes there were.
MOST_PASS_SPANS = 32

FLUSH_SECONDS = 5

_Stage: TypeAlias = tuple[str, float, float, dict[str, AttributeValue]]
"""Name, start, end and attributes of a span."""


# A member of `tracestate`: https://www.w3.org/TR/trace-context/#tracestate-header
_STATE_MEMBER = re.compile(r"[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,256}")
_LONGEST_STATE = 512


class Tracing:
    """Makes spans of finished requests; a thread sends them in batches, and what a dead collector can't take is lost.

    How many requests are sampled, headers for the collector and sizes of batches come from OpenTelemetry's own
    environment variables (`OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_…`).

    Args:
        endpoint: the collector, with or without `/v1/traces`.
        service_name: `service.name` of all spans.
        version: `service.version` of all spans.
    """

    def __init__(self, *, endpoint: str, service_name: str, version: str) -> None:
        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/").removesuffix(TRACES_PATH) + TRACES_PATH)
        self._provider = TracerProvider(
            resource=Resource.create({SERVICE_NAME: service_name, SERVICE_VERSION: version}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("bert-service", version)
        self._propagator = TraceContextTextMapPropagator()

    def record(self, record: RequestRecord) -> None:
        """Make the spans of a finished request; none for what monitoring asks every few seconds."""
        if record.route in PROBES:
            return
        clock = _EpochClock()
        carrier = {"traceparent": record.traceparent, "tracestate": _well_formed(record.tracestate)}
        span = self._tracer.start_span(
            f"{record.method} {record.route}" if record.route else record.method,
            context=self._propagator.extract(carrier),
            kind=SpanKind.SERVER,
            attributes=_request_attributes(record),
            start_time=clock.nanoseconds(record.started),
        )
        if span.is_recording():
            if record.status is None or record.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            if record.work is not None:
                parent = set_span_in_context(span)
                for name, started, finished, attributes in _stages(record.work):
                    stage = self._tracer.start_span(
                        name, context=parent, attributes=attributes, start_time=clock.nanoseconds(started)
                    )
                    stage.end(clock.nanoseconds(finished))
        span.end(clock.nanoseconds(record.finished))

    async def close(self) -> None:
        """Send what has not been sent, for `FLUSH_SECONDS` at most."""
        flushing = threading.Thread(target=self._provider.shutdown, name="flush traces", daemon=True)
        flushing.start()
        await asyncio.to_thread(flushing.join, FLUSH_SECONDS)


class _EpochClock:
    """Times of `time.monotonic`'s clock as nanoseconds since 1970, by one look at both clocks."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def nanoseconds(self, seconds: float) -> int:
        return self._offset + int(seconds * 1e9)


def _request_attributes(record: RequestRecord) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "http.request.method": record.method,
        "bert.request_id": record.request_id,
        "bert.client": record.client,
    }
    if record.route is not None:
        attributes["http.route"] = record.route
    if record.status is not None:
        attributes["http.response.status_code"] = record.status
    if record.work is not None:
        attributes["bert.items"] = len(record.work.answers)
        attributes["bert.compute_tokens"] = record.work.compute_tokens
        attributes["bert.passes"] = len(record.work.passes)
    return attributes


def _stages(work: RequestWork) -> list[_Stage]:
    """The spans below the request's."""
    passes = work.passes
    stages: list[_Stage] = [("tokenization", work.submitted, work.admitted, {})]
    if passes:
        stages.append(("queue", work.admitted, passes[0].started, {}))
    for each in passes[:MOST_PASS_SPANS]:
        size: dict[str, AttributeValue] = {"bert.batch.items": each.items, "bert.batch.tokens": each.tokens}
        stages.append(("pass", each.started, each.finished, size))
    return stages


def _well_formed(tracestate: str) -> str:
    """The state if it is one, else nothing: the library would log the words of what it does not know."""
    members = [member.strip(" \t") for member in tracestate.split(",")]
    good = len(tracestate) <= _LONGEST_STATE and all(not one or _STATE_MEMBER.fullmatch(one) for one in members)
    return tracestate if good else ""
