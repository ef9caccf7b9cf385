"""What is counted and timed during a run."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from service.load_generator.http_client import Answer

LATENCY = "latency"

SERVER_TIMES = {
    b"x-total-time": "server total",
    b"x-tokenization-time": "server tokenization",
    b"x-queue-time": "server queue",
    b"x-inference-time": "server inference",
}

PERCENTILES = (50, 90, 95, 99, 100)


@dataclass(slots=True)
class Measurements:
    """Grows while a run goes on.

    requests, texts, tokens: of the answers with status 200 that came within the measured time.
    failures: what happened instead of an answer with status 200, to how often.
    times_ms: `latency` and the server's own times, of every such answer to a request sent within the measured time.
    """

    requests: int = 0
    texts: int = 0
    tokens: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    times_ms: dict[str, array[float]] = field(
        default_factory=lambda: {name: array("d") for name in (LATENCY, *SERVER_TIMES.values())}
    )

    def count(self, answer: Answer, *, texts: int) -> None:
        """An answer came within the measured time."""
        self.requests += 1
        self.texts += texts
        self.tokens += int(answer.headers.get(b"x-compute-tokens", b"0"))

    def time(self, answer: Answer, *, seconds: float) -> None:
        """A request that was sent within the measured time was answered after so long."""
        self.times_ms[LATENCY].append(seconds * 1000)
        for header, name in SERVER_TIMES.items():
            if (value := answer.headers.get(header)) is not None:
                self.times_ms[name].append(float(value))

    def summary(self, *, seconds: float) -> dict[str, Any]:
        """Everything as JSON has it; rates are over `seconds`, the measured time."""
        return {
            "seconds": seconds,
            "requests": self.requests,
            "requests_per_second": self.requests / seconds,
            "texts": self.texts,
            "texts_per_second": self.texts / seconds,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens / seconds,
            "failures": dict(self.failures.most_common()),
            "times_ms": {
                name.replace(" ", "_"): percentiles(values) for name, values in self.times_ms.items() if values
            },
        }


def percentiles(values: Sequence[float]) -> Mapping[str, float]:
    """`p50` … `p99` by nearest rank, and `max`; every one of them is a value that was measured."""
    ordered = sorted(values)
    return {
        "max" if percent == 100 else f"p{percent}": ordered[math.ceil(percent / 100 * len(ordered)) - 1]
        for percent in PERCENTILES
    }


def failure_of(answer: Answer) -> str:
    """The name under which an answer without status 200 is counted: its status and the server's word for it."""
    kind = _error_body(answer).get("error_type")
    return f"{answer.status} {kind}" if isinstance(kind, str) else str(answer.status)


def message_of(answer: Answer) -> str:
    """What the server says is wrong, or the first of whatever it says."""
    message = _error_body(answer).get("error")
    return message if isinstance(message, str) else answer.body[:200].decode("utf-8", "replace").strip()


def _error_body(answer: Answer) -> dict[str, Any]:
    try:
        content = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
