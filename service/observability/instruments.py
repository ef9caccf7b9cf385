"""Counters, gauges and histograms for one event loop, exposed through `prometheus_client`.

The library's own instruments take a lock at each update and look for a histogram's bucket from the first one on: about
3 µs an observation with 35 buckets, for which an item of a request has several. These cost a tenth of it. They are
custom collectors of the library, which still does the registry and the text format.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry


class Counter:
    """One series that counts up; read and written as `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class CounterFamily(Collector):
    """Counters told apart by one label, one for each of its values from the start."""

    def __init__(
        self, name: str, documentation: str, *, label: str, values: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._counters = {value: Counter() for value in values}
        registry.register(self)

    def __getitem__(self, value: str) -> Counter:
        return self._counters[value]

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for label_value, counter in self._counters.items():
            family.add_metric([label_value], counter.value)
        yield family


class SingleCounter(Counter, Collector):
    """A counter without labels."""

    __slots__ = ("_documentation", "_name")

    def __init__(self, name: str, documentation: str, *, registry: CollectorRegistry) -> None:
        super().__init__()
        self._name = name
        self._documentation = documentation
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._documentation, value=self.value)


class Gauge(Collector):
    """One series that goes up and down; read and written as `value`."""

    def __init__(self, name: str, documentation: str, *, registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self.value: float = 0
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(self._name, self._documentation, value=self.value)


class Histogram(Collector):
    """Observations counted by bucket.

    Args:
        bounds: upper bounds of the buckets, inclusive, ascending; one without a bound is added.
    """

    def __init__(self, name: str, documentation: str, *, bounds: Sequence[float], registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        cumulative = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            cumulative += count
            buckets.append((bound, cumulative))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=self._sum)
