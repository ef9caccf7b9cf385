"""A collector of traces that keeps what it gets: OTLP over HTTP, in protobuf."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What has come: every span, and the attributes of their service."""

    url: str
    spans: list[Span] = field(default_factory=list)
    service: dict[str, object] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def children(self, parent: Span) -> list[Span]:
        """In order of time."""
        children = [span for span in self.spans if span.parent_span_id == parent.span_id]
        return sorted(children, key=lambda span: span.start_time_unix_nano)


def attributes(span: Span) -> dict[str, object]:
    values = {pair.key: pair.value for pair in span.attributes}
    return {key: getattr(value, str(value.WhichOneof("value"))) for key, value in values.items()}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A running collector."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
            collector.paths.append(self.path)
            for group in sent.resource_spans:
                collector.service |= {pair.key: pair.value.string_value for pair in group.resource.attributes}
                collector.spans += [span for scope in group.scope_spans for span in scope.spans]
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = Collector(url=f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
