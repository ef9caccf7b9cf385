"""Policies side by side in virtual time: `python -m tests.simulation`, half a minute.

Prints, for each situation and policy, what each client gets. Nothing is measured on this machine: a pass costs what
`PassCost` says, here about what an H200 does for BERT-base in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from service.batching.policy import QueueLimits
from tests.simulation.arrivals import Client, merged
from tests.simulation.simulator import FairQueue, FirstComeFirstServed, PassCost, Queue, Simulation

COST = PassCost(fixed_seconds=0.002, tokens_per_second=1_500_000.0)
LIMITS = QueueLimits(max_concurrent_requests=4096, max_queue_tokens=64 * 16_384, max_batch_tokens=16_384)
# 76 tokens are the mean of a log-normal length with median 47 and spread 1, cut at 512.
TEXTS_PER_SECOND = 1_500_000.0 / 76
POLICIES: dict[str, Callable[[QueueLimits], Queue]] = {
    "turns": FairQueue,
    "first come, first served": FirstComeFirstServed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Clients of so many GPUs; the first and the last of them are shown."""

    title: str
    clients: list[Client]
    gpus: int = 1
    seconds: float = 6.0
    timeout_seconds: float = 5.0


def singles(gpus: int = 1, *, load: float) -> list[Client]:
    """Ten clients with one text a request: so much of the capacity together."""
    return [
        Client(name=f"single {number}", requests_per_second=load * gpus * TEXTS_PER_SECOND / 10) for number in range(10)
    ]


def bulk(gpus: int = 1, *, burst_seconds: float = 2.0) -> Client:
    """A client that sends lists at more than the capacity, and then pauses as long."""
    rate = 1.5 * gpus * TEXTS_PER_SECOND / 2_000
    return Client(
        name="bulk", requests_per_second=rate, items=2_000, burst_seconds=burst_seconds, silence_seconds=burst_seconds
    )


SITUATIONS = (
    Situation(title="singles at 60 % of one GPU", clients=singles(load=0.6)),
    Situation(title="singles beside bursts of lists of 2,000, one GPU", clients=[*singles(load=0.3), bulk()]),
    Situation(title="three times the capacity, one GPU", clients=singles(load=3.0)),
    Situation(
        title="three times the capacity and 100 ms to answer, one GPU", clients=singles(load=3.0), timeout_seconds=0.1
    ),
    Situation(
        title="singles beside bursts of lists of 2,000, 64 GPUs",
        clients=[*singles(64, load=0.3), bulk(64, burst_seconds=0.2)],
        gpus=64,
        seconds=0.5,
    ),
)


def main() -> None:
    """Simulate everything, and print."""
    for situation in SITUATIONS:
        print(f"\n{situation.title}")
        print(f"  {'policy':<26}{'client':<10}{'median ms':>10}{'p99 ms':>10}{'late':>8}{'refused':>9}{'busy':>7}")
        for name, policy in POLICIES.items():
            _simulate(situation, name=name, policy=policy)


def _simulate(situation: Situation, *, name: str, policy: Callable[[QueueLimits], Queue]) -> None:
    simulation = Simulation(
        policy,
        limits=LIMITS,
        cost=COST,
        processes=situation.gpus,
        timeout_seconds=situation.timeout_seconds,
        seed=7,
    )
    report = simulation.run(merged(situation.clients, seconds=situation.seconds, seed=7))
    for client in (situation.clients[0].name, situation.clients[-1].name):
        outcome = report.outcomes[client]
        print(
            f"  {name:<26}{client:<10}{outcome.percentile(50) * 1e3:>10.1f}{outcome.percentile(99) * 1e3:>10.1f}"
            f"{outcome.late:>8}{outcome.refused:>9}{report.busy_share:>7.0%}"
        )


if __name__ == "__main__":
    main()
