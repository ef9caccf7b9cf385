"""A service in virtual time: the queue that serves, passes that only cost time, and no threads.

Each engine (a GPU, or a thread of a CPU) runs one pass after the other. One queue feeds the engines of a process;
several processes share at random what arrives, as those do that listen on one socket.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from service.batching.policy import Admission, Batch, QueueLimits, WaitingQueue
from tests.simulation.arrivals import SimulatedItem, SimulatedRequest


class Queue(Protocol):
    """What the simulator needs of a policy."""

    @property
    def waiting_items(self) -> int: ...

    def admission(self, *, items: int, tokens: int) -> Admission: ...

    def add(self, items: Iterable[SimulatedItem], *, client: str, deadline: float | None) -> object: ...

    def take_batch(self, *, now: float) -> Batch[SimulatedItem]: ...

    def finished(self, batch: Batch[SimulatedItem]) -> None: ...


class FairQueue(WaitingQueue[SimulatedItem]):
    """The policy that serves."""


class FirstComeFirstServed:
    """What most servers do, for comparison: the same limits, but items in the order in which they came."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._waiting: deque[tuple[SimulatedItem, float]] = deque()
        self._counts: WaitingQueue[SimulatedItem] = WaitingQueue(limits)

    @property
    def waiting_items(self) -> int:
        return self._counts.waiting_items

    def admission(self, *, items: int, tokens: int) -> Admission:
        return self._counts.admission(items=items, tokens=tokens)

    def add(self, items: Iterable[SimulatedItem], *, client: str, deadline: float | None) -> object:
        del client
        for item in items:
            self._waiting.append((item, math.inf if deadline is None else deadline))
            self._count(item, change=1)
        return None

    def take_batch(self, *, now: float) -> Batch[SimulatedItem]:
        taken: list[SimulatedItem] = []
        late: list[SimulatedItem] = []
        tokens = 0
        while self._waiting:
            item, deadline = self._waiting[0]
            if deadline > now and taken and tokens + item.compute_tokens > self._limits.max_batch_tokens:
                break
            self._waiting.popleft()
            self._count(item, change=-1)
            if deadline <= now:
                late.append(item)
                continue
            taken.append(item)
            tokens += item.compute_tokens
        self._counts.running_items += len(taken)
        return Batch(items=taken, tokens=tokens, late=late)

    def finished(self, batch: Batch[SimulatedItem]) -> None:
        self._counts.running_items -= len(batch.items)

    def _count(self, item: SimulatedItem, *, change: int) -> None:
        self._counts.waiting_items += change
        self._counts.waiting_tokens += change * item.compute_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCost:
    """Seconds that a pass takes: a fixed part, and one for each token."""

    fixed_seconds: float
    tokens_per_second: float

    def seconds(self, tokens: int) -> float:
        return self.fixed_seconds + tokens / self.tokens_per_second


@dataclass(kw_only=True)
class Outcome:
    """What became of a client's items. Latencies are seconds from arrival to answer."""

    latencies: list[float] = field(default_factory=list)
    longest_wait_in_passes: int = 0
    late: int = 0
    refused: int = 0

    def percentile(self, percent: float) -> float:
        """The latency that so many percent of the answered items do not exceed; infinite without answers."""
        if not self.latencies:
            return math.inf
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(kw_only=True)
class Report:
    """By client, and for all: items answered per second, and the share of time that engines were busy."""

    clients: dict[str, Outcome]
    items_per_second: float
    busy_share: float


class Simulation:
    """Args:
    make_queue: a policy; one queue a process.
    cost: of a pass on any engine.
    processes, engines: engines of each process; 64 GPUs are 64 processes of one engine each.
    timeout_seconds: the deadline of every request.
    """

    def __init__(
        self,
        make_queue: Callable[[QueueLimits], Queue],
        *,
        limits: QueueLimits,
        cost: PassCost,
        processes: int = 1,
        engines: int = 1,
        timeout_seconds: float = math.inf,
        seed: int = 0,
    ) -> None:
        self._queues = [make_queue(limits) for _ in range(processes)]
        self._idle = [engines] * processes
        self._engines = engines * processes
        self._cost = cost
        self._timeout_seconds = timeout_seconds
        self._randomness = random.Random(seed)
        self._ends: list[tuple[float, int, int, Batch[SimulatedItem]]] = []
        self._passes_begun = [0] * processes
        self._passes_seen: dict[int, int] = {}
        self._clients: dict[str, Outcome] = defaultdict(Outcome)
        self._client_of: dict[int, str] = {}
        self._busy_seconds = 0.0

    def run(self, requests: Iterable[SimulatedRequest]) -> Report:
        """All requests, in order of time, and then until nothing waits."""
        now = 0.0
        for request in requests:
            self._run_until(request.arrival)
            self._arrive(request)
            now = request.arrival
        while self._ends:
            now = self._ends[0][0]
            self._run_until(now)
        answered = sum(len(outcome.latencies) for outcome in self._clients.values())
        return Report(
            clients=dict(self._clients),
            items_per_second=answered / now if now else 0.0,
            busy_share=self._busy_seconds / (now * self._engines) if now else 0.0,
        )

    def _arrive(self, request: SimulatedRequest) -> None:
        process = self._randomness.randrange(len(self._queues))
        queue = self._queues[process]
        outcome = self._clients[request.client]
        tokens = sum(item.compute_tokens for item in request.items)
        if queue.admission(items=len(request.items), tokens=tokens) is not Admission.ACCEPTED:
            outcome.refused += len(request.items)
            return
        for item in request.items:
            self._client_of[id(item)] = request.client
            self._passes_seen[id(item)] = self._passes_begun[process]
        queue.add(request.items, client=request.client, deadline=request.arrival + self._timeout_seconds)
        self._start_passes(process, now=request.arrival)

    def _run_until(self, time: float) -> None:
        while self._ends and self._ends[0][0] <= time:
            now, _, process, batch = heapq.heappop(self._ends)
            self._idle[process] += 1
            self._queues[process].finished(batch)
            for item in batch.items:
                outcome = self._clients[self._client_of.pop(id(item))]
                outcome.latencies.append(now - item.arrival)
            self._start_passes(process, now=now)

    def _start_passes(self, process: int, *, now: float) -> None:
        queue = self._queues[process]
        while self._idle[process] and queue.waiting_items:
            batch = queue.take_batch(now=now)
            for item in batch.late:
                del self._passes_seen[id(item)]
                self._clients[self._client_of.pop(id(item))].late += 1
            if not batch.items:
                continue
            for item in batch.items:
                waited = self._passes_begun[process] - self._passes_seen.pop(id(item))
                outcome = self._clients[self._client_of[id(item)]]
                outcome.longest_wait_in_passes = max(outcome.longest_wait_in_passes, waited)
            self._idle[process] -= 1
            seconds = self._cost.seconds(batch.tokens)
            self._busy_seconds += seconds
            self._passes_begun[process] += 1
            heapq.heappush(self._ends, (now + seconds, self._passes_begun[process], process, batch))
