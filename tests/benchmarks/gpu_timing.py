"""Seconds per call on a device, of several things in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeAlias

import torch
from torch import Tensor

Work: TypeAlias = Callable[[], object]
TensorWork: TypeAlias = Callable[[], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """rounds: turns of each work, whose median counts. seconds: how long a turn lasts."""

    device: torch.device
    rounds: int
    seconds: float

    def per_call(self, works: Mapping[str, Work]) -> dict[str, float]:
        """Seconds per call where calls follow each other without a pause; works take turns."""
        counts = {name: self._count(work) for name, work in works.items()}
        found: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(self.rounds):
            for name, work in works.items():
                found[name].append(self._turn(work, count=counts[name]) / counts[name])
        return {name: median(values) for name, values in found.items()}

    def latencies(self, works: Mapping[str, Work]) -> dict[str, dict[str, float]]:
        """Seconds from a call until its result is there, each call alone: `p50` and `p95`."""
        counts = {name: max(2, self.rounds * self._count(work)) for name, work in works.items()}
        found = {}
        for name, work in works.items():
            values = [self._turn(work, count=1) for _ in range(counts[name])]
            found[name] = {"p50": median(values), "p95": quantiles(values, n=20)[-1]}
        return found

    def _count(self, work: Work) -> int:
        """Calls in a turn, after two that warm up."""
        self._turn(work, count=2)
        return max(1, min(1000, round(self.seconds / self._turn(work, count=1))))

    def _turn(self, work: Work, *, count: int) -> float:
        self._wait()
        begin = time.perf_counter()
        for _ in range(count):
            work()
        self._wait()
        return time.perf_counter() - begin

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
