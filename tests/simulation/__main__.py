"""Policies side by side in virtual time: `python -m tests.simulation`.

Prints, for each situation and policy, what each client gets. Nothing is measured on this machine: a pass costs what
`PassCost` says, here about what an H200 does for BERT-base in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable

from service.batching.policy import QueueLimits
from tests.simulation.arrivals import Client, merged
from tests.simulation.simulator import FairQueue, FirstComeFirstServed, PassCost, Queue, Simulation

SECONDS = 12.0
TIMEOUT_SECONDS = 5.0
COST = PassCost(fixed_seconds=0.002, tokens_per_second=1_500_000.0)
LIMITS = QueueLimits(max_concurrent_requests=4096, max_queue_tokens=64 * 16_384, max_batch_tokens=16_384)
# 78 tokens are the mean of a log-normal length with median 47 and spread 1, cut at 512.
TEXTS_PER_SECOND = 1_500_000.0 / 78

SITUATIONS: dict[str, tuple[int, Callable[[int], list[Client]]]] = {
    "singles at 60 % of one GPU": (1, lambda gpus: singles(gpus, load=0.6)),
    "singles beside bursts of lists of 2,000, one GPU": (1, lambda gpus: [*singles(gpus, load=0.3), *bulk(gpus)]),
    "three times the capacity, one GPU": (1, lambda gpus: singles(gpus, load=3.0)),
    "singles beside bursts of lists of 2,000, 64 GPUs": (64, lambda gpus: [*singles(gpus, load=0.3), *bulk(gpus)]),
}
POLICIES: dict[str, Callable[[QueueLimits], Queue]] = {
    "turns": FairQueue,
    "first come, first served": FirstComeFirstServed,
}


def singles(gpus: int, *, load: float) -> list[Client]:
    """Ten clients with one text a request: so much of the capacity together."""
    return [
        Client(name=f"single {number}", requests_per_second=load * gpus * TEXTS_PER_SECOND / 10) for number in range(10)
    ]


def bulk(gpus: int) -> list[Client]:
    """A client that sends lists for two seconds and then pauses as long, at more than the capacity."""
    rate = 1.5 * gpus * TEXTS_PER_SECOND / 2_000
    return [Client(name="bulk", requests_per_second=rate, items=2_000, burst_seconds=2.0, silence_seconds=2.0)]


def main() -> None:
    """Simulate everything, and print."""
    for title, (gpus, clients) in SITUATIONS.items():
        print(f"\n{title}")
        print(f"  {'policy':<26}{'client':<10}{'median ms':>10}{'p99 ms':>10}{'late':>8}{'refused':>9}{'busy':>7}")
        for name, policy in POLICIES.items():
            simulation = Simulation(
                policy, limits=LIMITS, cost=COST, processes=gpus, timeout_seconds=TIMEOUT_SECONDS, seed=7
            )
            report = simulation.run(merged(clients(gpus), seconds=SECONDS if gpus == 1 else 4.0, seed=7))
            for client in ("single 0", "bulk"):
                if outcome := report.clients.get(client):
                    print(
                        f"  {name:<26}{client:<10}{outcome.percentile(50) * 1e3:>10.1f}"
                        f"{outcome.percentile(99) * 1e3:>10.1f}{outcome.late:>8}{outcome.refused:>9}"
                        f"{report.busy_share:>7.0%}"
                    )


if __name__ == "__main__":
    main()
