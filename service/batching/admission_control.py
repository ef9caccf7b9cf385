"""What is too much, for now or for good: refused with the reason, and counted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic

from service.batching.policy import Admission, DrainRate, QueueLimits, WaitingQueue
from service.batching.protocol import EncodedT
from service.batching.submission import Item
from service.errors import Overloaded, PayloadTooLarge
from service.observability.metrics import Metrics
from service.tasks import FillMask


class AdmissionControl(Generic[EncodedT]):
    """Holds the limits of a queue against what wants to come in.

    Args:
        queue: what waits and runs already.
        limits: the queue's own.
        drain_rate: tells those who are refused when to come back.
        metrics: counts them.
    """

    def __init__(
        self,
        queue: WaitingQueue[Item[EncodedT]],
        *,
        limits: QueueLimits,
        drain_rate: DrainRate,
        metrics: Metrics,
    ) -> None:
        self._queue = queue
        self._limits = limits
        self._drain_rate = drain_rate
        self._metrics = metrics

    def require_room(self, *, items: int, tokens: int, accepted: bool = False) -> None:
        """See that so much work may come in.

        Args:
            accepted: it is a later part of a request that was taken on, so only what never fits is refused.

        Raises:
            PayloadTooLarge: more than could ever be accepted.
            Overloaded: no room now.
        """
        admission = self._queue.admission(items=items, tokens=tokens)
        if admission is Admission.NEVER_FITS:
            self._metrics.request_refused("payload_too_large")
            raise PayloadTooLarge(
                f"{items} items of at least {tokens} tokens together are more than can ever wait here; "
                f"at most {self._limits.max_concurrent_requests} items and {self._limits.max_queue_tokens} tokens",
                field="inputs",
            )
        if admission is Admission.QUEUE_FULL and not accepted:
            raise self._overloaded("the queue is full")

    def require_time(self, *, items: int, client: str, seconds_left: float) -> None:
        """See that so many items of a client can be answered within so long, by all that is known.

        Raises:
            Overloaded: the queue is too long for that.
        """
        tokens = self._queue.tokens_before_answer(client=client, items=items)
        if not self._drain_rate.is_in_time(tokens=tokens, seconds_left=seconds_left):
            raise self._overloaded("the queue is too long for the deadline")

    def require_short_answers(self, items: Sequence[Item[EncodedT]]) -> None:
        """See that the answers of one request can be sent together.

        Raises:
            PayloadTooLarge: they would be too long.
        """
        characters = sum(item.answer_characters for item in items)
        most = self._limits.max_answer_characters
        if characters > most:
            self._metrics.request_refused("payload_too_large")
            raise PayloadTooLarge(
                f"the answer would be about {characters} characters long, and the most is {most}; send less in one "
                "request, or ask for fewer predictions",
                field="top_k" if isinstance(items[0].task, FillMask) else "inputs",
            )

    def _overloaded(self, message: str) -> Overloaded:
        self._metrics.request_refused("overloaded")
        tokens = self._queue.waiting_tokens + self._queue.running_tokens
        seconds = self._drain_rate.retry_after_seconds(tokens=tokens, jitter=random.random())
        return Overloaded(message, retry_after_seconds=seconds)
