"""A service in virtual time: the queue that serves, passes that only cost time, and no threads.

A process has engines (a GPU, or the threads of a CPU) and one queue that feeds them; several processes share at random
what arrives, as those do that listen on one port. Passes begin as the service's pass loop begins them, and requests are
admitted as its batcher admits them.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from service.batching.policy import Admission, Batch, DrainRate, PassSize, QueueLimits, WaitingQueue
from tests.simulation.arrivals import SimulatedItem, SimulatedRequest


class Queue(Protocol):
    """What the simulator needs of a policy."""

    @property
    def waiting_items(self) -> int: ...

    def admission(self, *, items: int, tokens: int) -> Admission: ...

    def tokens_before_answer(self, *, client: str, items: int) -> int: ...

    def add(self, items: Iterable[SimulatedItem], *, client: str, deadline: float | None) -> object: ...

    def pass_size(self, *, threads: int, idle: int) -> PassSize: ...

    def take_batch(self, *, now: float, max_tokens: int) -> Batch[SimulatedItem]: ...

    def finished(self, batch: Batch[SimulatedItem]) -> None: ...


class FairQueue(WaitingQueue[SimulatedItem]):
    """The policy that serves."""


class FirstComeFirstServed:
    """What most servers do, for comparison: items in the order in which they came, and no look at the deadline before.

    Limits and passes are the same.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._waiting: deque[tuple[SimulatedItem, float]] = deque()
        self._counts: WaitingQueue[SimulatedItem] = WaitingQueue(limits)
        self.admission = self._counts.admission
        self.pass_size = self._counts.pass_size
        self.finished = self._counts.finished

    @property
    def waiting_items(self) -> int:
        return self._counts.waiting_items

    def tokens_before_answer(self, **_: object) -> int:
        return 0

    def add(self, items: Iterable[SimulatedItem], *, client: str, deadline: float | None) -> object:
        del client
        for item in items:
            self._waiting.append((item, math.inf if deadline is None else deadline))
            self._count(item, change=1)
        return None

    def take_batch(self, *, now: float, max_tokens: int) -> Batch[SimulatedItem]:
        taken: list[SimulatedItem] = []
        late: list[SimulatedItem] = []
        tokens = 0
        while self._waiting:
            item, deadline = self._waiting[0]
            if deadline > now and taken and tokens + item.compute_tokens > max_tokens:
                break
            self._waiting.popleft()
            self._count(item, change=-1)
            if deadline <= now:
                late.append(item)
                continue
            taken.append(item)
            tokens += item.compute_tokens
        self._counts.running_items += len(taken)
        self._counts.running_tokens += tokens
        return Batch(items=taken, tokens=tokens, late=late)

    def _count(self, item: SimulatedItem, *, change: int) -> None:
        self._counts.waiting_items += change
        self._counts.waiting_tokens += change * item.compute_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCost:
    """Seconds that a pass takes on one engine: a fixed part, and one for each token."""

    fixed_seconds: float
    tokens_per_second: float

    def seconds(self, tokens: int, *, engines: int = 1) -> float:
        """Of a pass that several engines share."""
        return self.fixed_seconds + tokens / (self.tokens_per_second * engines)


@dataclass(kw_only=True)
class Outcome:
    """What became of a client's items, or of another group's. Latencies are seconds from arrival to answer."""

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
    """By client or other group, and for all.

    seconds: until the last answer.
    busy_share: of all engines' time.
    wasted_seconds: in which an engine was idle while something waited in its queue.
    """

    outcomes: dict[str, Outcome]
    seconds: float
    busy_share: float
    wasted_seconds: float

    @property
    def items_per_second(self) -> float:
        """Answered."""
        answered = sum(len(outcome.latencies) for outcome in self.outcomes.values())
        return answered / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class _Process:
    queue: Queue
    idle: int
    drain_rate: DrainRate = field(default_factory=DrainRate)
    passes_begun: int = 0


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
        self._processes = [_Process(make_queue(limits), idle=engines) for _ in range(processes)]
        self._limits = limits
        self._engines = engines
        self._cost = cost
        self._timeout_seconds = timeout_seconds
        self._randomness = random.Random(seed)
        self._numbers = itertools.count()
        self._ends: list[tuple[float, int, Callable[[], None]]] = []
        self._outcomes: dict[str, Outcome] = defaultdict(Outcome)
        self._now = 0.0
        self._busy_seconds = 0.0
        self._wasted_seconds = 0.0

    def run(self, requests: Iterable[SimulatedRequest]) -> Report:
        """All requests, in order of time, and then until nothing waits."""
        for request in requests:
            self._run_until(request.arrival)
            self._pass_time(request.arrival)
            self._arrive(request)
        self._run_until(math.inf)
        return Report(
            outcomes=dict(self._outcomes),
            seconds=self._now,
            busy_share=self._busy_seconds / (self._now * self._engines * len(self._processes)) if self._now else 0.0,
            wasted_seconds=self._wasted_seconds,
        )

    def _run_until(self, time: float) -> None:
        while self._ends and self._ends[0][0] <= time:
            at, _, end = heapq.heappop(self._ends)
            self._pass_time(at)
            end()

    def _pass_time(self, now: float) -> None:
        if len(self._processes) == 1:
            [process] = self._processes
            if process.idle and process.queue.waiting_items:
                self._wasted_seconds += now - self._now
        self._now = now

    def _arrive(self, request: SimulatedRequest) -> None:
        process = self._randomness.choice(self._processes)
        if not self._accepts(request, process):
            self._outcomes[request.group or request.client].refused += len(request.tokens)
            return
        items = request.items()
        for item in items:
            item.passes_before = process.passes_begun
        process.queue.add(items, client=request.client, deadline=self._now + self._timeout_seconds)
        self._start_passes(process)

    def _accepts(self, request: SimulatedRequest, process: _Process) -> bool:
        queue, items = process.queue, len(request.tokens)
        if queue.admission(items=items, tokens=sum(request.tokens)) is not Admission.ACCEPTED:
            return False
        tokens = queue.tokens_before_answer(client=request.client, items=items)
        return process.drain_rate.is_in_time(tokens=tokens, seconds_left=self._timeout_seconds)

    def _start_passes(self, process: _Process) -> None:
        while process.idle and process.queue.waiting_items:
            size = process.queue.pass_size(threads=self._engines, idle=process.idle)
            batch = process.queue.take_batch(now=self._now, max_tokens=size.max_tokens)
            for item in batch.late:
                self._outcomes[item.group].late += 1
            if batch.items:
                self._start_pass(process, batch, engines=size.threads)

    def _start_pass(self, process: _Process, batch: Batch[SimulatedItem], *, engines: int) -> None:
        for item in batch.items:
            outcome = self._outcomes[item.group]
            waited = process.passes_begun - item.passes_before
            outcome.longest_wait_in_passes = max(outcome.longest_wait_in_passes, waited)
        process.passes_begun += 1
        process.idle -= engines
        seconds = self._cost.seconds(batch.tokens, engines=engines)
        self._busy_seconds += seconds * engines

        def end() -> None:
            process.idle += engines
            process.queue.finished(batch)
            share = engines / self._engines
            is_full = batch.tokens >= self._limits.max_batch_tokens * share / 2
            process.drain_rate.observe(tokens=batch.tokens, seconds=seconds * share, is_full=is_full)
            for item in batch.items:
                self._outcomes[item.group].latencies.append(self._now - item.arrival)
            self._start_passes(process)

        heapq.heappush(self._ends, (self._now + seconds, next(self._numbers), end))
