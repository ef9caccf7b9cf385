"""Who asks when for how much: clients of a service, in virtual time."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

LONGEST_TOKENS = 512
DISTINCT_LENGTHS = 4096


@dataclass(slots=True, eq=False)
class SimulatedItem:
    """A text that waits; the queue looks at its cost alone.

    group: whose outcome it is.
    arrival: seconds of virtual time.
    passes_before: that had begun when it was queued.
    """

    compute_tokens: int
    group: str
    arrival: float
    answer_characters: int = 0
    passes_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """One HTTP request.

    tokens: of each of its texts.
    group: whose outcome it is, if it is not to be counted with all of its client.
    """

    client: str
    arrival: float
    tokens: Sequence[int]
    group: str | None = None

    def items(self) -> list[SimulatedItem]:
        """Its texts, one item each."""
        group = self.group or self.client
        return [SimulatedItem(tokens, group, self.arrival) for tokens in self.tokens]


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client that does not wait for its answers before it asks again (an open loop).

    requests_per_second: on average; the times between requests are exponential, as of many independent users.
    items: texts of each request.
    median_tokens, spread: lengths are log-normal with this median and this standard deviation of the logarithm, cut at
        `LONGEST_TOKENS`: a spread of 1 is the long tail of texts that people send.
    burst_seconds, silence_seconds: it asks for so long, then not for so long; no silence by default.
    """

    name: str
    requests_per_second: float
    items: int = 1
    median_tokens: int = 47
    spread: float = 1.0
    burst_seconds: float = math.inf
    silence_seconds: float = 0.0

    def requests(self, *, seconds: float, randomness: random.Random) -> Iterator[SimulatedRequest]:
        """What it sends within so many seconds, in order of time."""
        at = randomness.expovariate(self.requests_per_second)
        while at < seconds:
            if at % (self.burst_seconds + self.silence_seconds) < self.burst_seconds:
                tokens = randomness.choices(self._lengths, k=self.items)
                yield SimulatedRequest(client=self.name, arrival=at, tokens=tokens)
            at += randomness.expovariate(self.requests_per_second)

    @cached_property
    def _lengths(self) -> list[int]:
        """Drawn once: a text's length is then a choice, which is much quicker."""
        randomness = random.Random(self.median_tokens)
        drawn = (randomness.lognormvariate(math.log(self.median_tokens), self.spread) for _ in range(DISTINCT_LENGTHS))
        return [min(max(round(tokens), 3), LONGEST_TOKENS) for tokens in drawn]


def merged(clients: Sequence[Client], *, seconds: float, seed: int) -> Iterator[SimulatedRequest]:
    """The requests of all clients in order of time; the same for the same seed."""
    streams = [
        client.requests(seconds=seconds, randomness=random.Random(f"{seed} {client.name}")) for client in clients
    ]
    return heapq.merge(*streams, key=lambda request: request.arrival)
