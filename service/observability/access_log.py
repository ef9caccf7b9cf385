"""One line of the log for each request that has been answered."""

from __future__ import annotations

import logging

from service.observability.request_record import PROBES, RequestRecord

logger = logging.getLogger(__name__)


def log_request(record: RequestRecord) -> None:
    """Log a finished request; what monitoring asks every few seconds only at level DEBUG."""
    level = logging.DEBUG if record.route in PROBES else logging.INFO
    if logger.isEnabledFor(level):
        logger.log(level, "request", extra=_fields(record))


def _fields(record: RequestRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        "method": record.method,
        "path": record.route or "unknown",
        "status": record.status,
        "request_id": record.request_id,
        "client": record.client,
        "total_ms": _milliseconds(record.finished - record.started),
    }
    if record.work is not None:
        timing = record.work.timing
        fields["tokenization_ms"] = _milliseconds(timing.tokenization)
        fields["queue_ms"] = _milliseconds(timing.queue)
        fields["inference_ms"] = _milliseconds(timing.inference)
        fields["compute_tokens"] = record.work.compute_tokens
    return fields


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
