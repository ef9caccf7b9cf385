"""What becomes known of one request on its way, for the log and for traces; nothing of it is the caller's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.tasks import Answer, PassRecord, Timing

PROBES = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})
"""Routes that machines ask every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWork:
    """What the model has done for a request.

    submitted: when its tasks went to tokenization, on `time.monotonic`'s clock.
    timing: of the slowest of its items.
    answers: one at least.
    """

    submitted: float
    timing: Timing
    answers: Sequence[Answer]

    @property
    def compute_tokens(self) -> int:
        return sum(answer.compute_tokens for answer in self.answers)

    @property
    def admitted(self) -> float:
        """When its items, tokenized, began to wait for a pass, or were answered without one."""
        first = self.answers[0]
        if not first.passes:
            return self.submitted + self.timing.tokenization
        # The wait of several steps is longer than the first one's.
        return max(self.submitted, first.passes[0].started - first.timing.queue)

    @property
    def passes(self) -> list[PassRecord]:
        """The passes that its items went through, each once, in order of time."""
        passes = dict.fromkeys(each for answer in self.answers for each in answer.passes)
        return sorted(passes, key=lambda each: each.started)


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request. The rooms that it comes through fill in what they learn; it is complete when it has been answered.

    client: who takes turns in the queue: the name of an API key, or else an address.
    route: the path of the route, without a query; None if there is no such route.
    traceparent, tracestate: W3C trace context, as it came.
    started, finished: on `time.monotonic`'s clock.
    status: None if the request was broken off before it had one.
    """

    method: str
    request_id: str
    client: str
    started: float
    route: str | None
    traceparent: str = ""
    tracestate: str = ""
    status: int | None = None
    finished: float = 0.0
    work: RequestWork | None = None
