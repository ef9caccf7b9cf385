"""Who asks when for how much: clients of a service, in virtual time."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST_TOKENS = 512


@dataclass(slots=True, eq=False)
class SimulatedItem:
    """A text that waits; the queue looks at its cost alone. Times are seconds of virtual time."""

    compute_tokens: int
    arrival: float
    answer_characters: int = 0
    finished: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRequest:
    """One HTTP request."""

    client: str
    arrival: float
    items: list[SimulatedItem] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
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
                items = [SimulatedItem(compute_tokens=self._tokens(randomness), arrival=at) for _ in range(self.items)]
                yield SimulatedRequest(client=self.name, arrival=at, items=items)
            at += randomness.expovariate(self.requests_per_second)

    def _tokens(self, randomness: random.Random) -> int:
        tokens = round(randomness.lognormvariate(math.log(self.median_tokens), self.spread))
        return min(max(tokens, 3), LONGEST_TOKENS)


def merged(clients: list[Client], *, seconds: float, seed: int) -> Iterator[SimulatedRequest]:
    """The requests of all clients in order of time; the same for the same seed."""
    streams = [
        client.requests(seconds=seconds, randomness=random.Random(f"{seed} {client.name}")) for client in clients
    ]
    return heapq.merge(*streams, key=lambda request: request.arrival)
