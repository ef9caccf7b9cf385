"""What the policy promises, as properties of the service in virtual time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batching.policy import QueueLimits
from tests.simulation.arrivals import Client, SimulatedRequest, merged
from tests.simulation.simulator import FairQueue, FirstComeFirstServed, Outcome, PassCost, Report, Simulation

COST = PassCost(fixed_seconds=0.5, tokens_per_second=7.0)
MAX_BATCH_TOKENS = 90
ROOMY = QueueLimits(max_concurrent_requests=10**6, max_queue_tokens=10**9, max_batch_tokens=MAX_BATCH_TOKENS)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A process with so many engines, or several, and the limits of their queues."""

    limits: QueueLimits
    engines: int
    processes: int = 1
    timeout_seconds: float = math.inf

    def run(self, requests: Sequence[SimulatedRequest], *, fair: bool = True) -> Report:
        simulation = Simulation(
            FairQueue if fair else FirstComeFirstServed,
            limits=self.limits,
            cost=COST,
            processes=self.processes,
            engines=self.engines,
            timeout_seconds=self.timeout_seconds,
        )
        return simulation.run(sorted(requests, key=lambda request: request.arrival))


requests = st.lists(
    st.builds(
        SimulatedRequest,
        client=st.sampled_from("vwxyz"),
        arrival=st.integers(0, 200).map(lambda tenths: tenths / 10),
        tokens=st.lists(st.integers(1, 130), min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=30,
)
narrow_limits = st.builds(
    QueueLimits,
    max_concurrent_requests=st.integers(1, 60),
    max_queue_tokens=st.integers(1, 900),
    max_batch_tokens=st.integers(1, 200),
)
machines = st.builds(
    Machine,
    limits=narrow_limits,
    engines=st.integers(1, 4),
    processes=st.integers(1, 3),
    timeout_seconds=st.one_of(st.just(math.inf), st.integers(0, 30).map(float)),
)


def items(outcome: Outcome) -> int:
    return len(outcome.latencies) + outcome.late + outcome.refused


@settings(deadline=None)
@given(requests=requests, machine=machines, fair=st.booleans())
def test_every_item_is_answered_or_late_or_refused_and_none_is_lost(
    requests: list[SimulatedRequest], machine: Machine, fair: bool
) -> None:
    report = machine.run(requests, fair=fair)
    sent: Counter[str] = Counter()
    for request in requests:
        sent[request.client] += len(request.tokens)
    assert {client: items(outcome) for client, outcome in report.outcomes.items()} == sent


@settings(deadline=None)
@given(requests=requests, engines=st.integers(1, 4))
def test_nothing_is_late_or_refused_without_a_deadline_and_with_room(
    requests: list[SimulatedRequest], engines: int
) -> None:
    report = Machine(limits=ROOMY, engines=engines).run(requests)
    assert all(outcome.late == outcome.refused == 0 for outcome in report.outcomes.values())


@settings(deadline=None)
@given(requests=requests, limits=narrow_limits, engines=st.integers(1, 4), fair=st.booleans())
def test_no_engine_is_idle_while_something_waits(
    requests: list[SimulatedRequest], limits: QueueLimits, engines: int, fair: bool
) -> None:
    assert Machine(limits=limits, engines=engines).run(requests, fair=fair).wasted_seconds == 0


# Small enough that one turn of all requests of all clients fits the pass of one engine of three.
SMALL = 2


@settings(deadline=None)
@given(
    bulk=st.lists(st.lists(st.integers(1, SMALL), min_size=1, max_size=300), min_size=1, max_size=5),
    tokens=st.integers(1, 3 * MAX_BATCH_TOKENS),
    arrival=st.floats(0.0, 30.0),
    one_client=st.booleans(),
    engines=st.integers(1, 3),
)
def test_a_single_item_waits_for_the_passes_that_run_and_one_more(
    bulk: list[list[int]], tokens: int, arrival: float, one_client: bool, engines: int
) -> None:
    """However much waits before it or comes after it, be it small or large, of one client or of several."""

    def client(name: str) -> str:
        return "one" if one_client else name

    waiting = [
        SimulatedRequest(client=client(f"bulk {number}"), arrival=0.0, tokens=row) for number, row in enumerate(bulk)
    ]
    endless = [SimulatedRequest(client="later", arrival=at / 4, tokens=[SMALL] * 3) for at in range(160)]
    single = SimulatedRequest(client=client("single"), arrival=arrival, tokens=[tokens], group="single")
    report = Machine(limits=ROOMY, engines=engines).run([*waiting, *endless, single])
    assert report.outcomes["single"].longest_wait_in_passes <= engines


@pytest.mark.parametrize("engines", [1, 3])
@pytest.mark.parametrize("load", [2.0, 10.0])
@pytest.mark.parametrize("timeout_seconds", [40.0, 120.0, 1000.0])
def test_overload_costs_no_answers_and_what_is_accepted_is_in_time(
    load: float, timeout_seconds: float, engines: int
) -> None:
    limits = QueueLimits(max_concurrent_requests=200, max_queue_tokens=3_000, max_batch_tokens=MAX_BATCH_TOKENS)
    machine = Machine(limits=limits, engines=engines, timeout_seconds=timeout_seconds)

    def run(load: float) -> Report:
        client = Client(name="x", requests_per_second=load * engines * 0.6, median_tokens=9, spread=0.5)
        return machine.run(list(merged([client], seconds=4_000.0, seed=3)))

    peak, overloaded = run(0.95), run(load)
    outcome = overloaded.outcomes["x"]
    assert overloaded.items_per_second > 0.95 * peak.items_per_second
    assert outcome.percentile(99) < timeout_seconds
    assert outcome.late < limits.max_concurrent_requests  # from before the first full pass had ended
    assert outcome.refused > 0.5 * (load - 1) * len(outcome.latencies)
