"""Counters, gauges and histograms for one event loop, exposed through `prometheus_client`.

The library's own instruments take a lock at each update and look for a histogram's bucket from the first one on: about
3 µs an observation with 35 buckets, for which an item of a request has several. These cost a tenth of it. One custom
collector of the library shows them all; the library still does the registry and the text format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from service.observability.shared_values import SharedValues


class Instrument(ABC):
    """Something that counts, under a name; always the same number of values, in the same order."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name = name
        self._documentation = documentation

    @abstractmethod
    def values(self) -> list[float]:
        """What this process has counted."""

    @abstractmethod
    def family(self, values: Sequence[float]) -> Metric:
        """The series that show such values, of this process or sums of several."""


InstrumentT = TypeVar("InstrumentT", bound=Instrument)


class Instruments(Collector):
    """The instruments of one service, in the order in which they are added.

    Args:
        shared: the values of all processes of the service, to show their sums; None if this is the only one.
    """

    def __init__(self, shared: SharedValues | None = None) -> None:
        self._shared = shared
        self._instruments: list[Instrument] = []

    def add(self, instrument: InstrumentT) -> InstrumentT:
        self._instruments.append(instrument)
        return instrument

    def values(self) -> list[float]:
        """What this process has counted."""
        return [value for instrument in self._instruments for value in instrument.values()]

    def publish(self) -> None:
        """Let the other processes see what this one has counted."""
        if self._shared is not None:
            self._shared.publish(self.values())

    def collect(self) -> Iterator[Metric]:
        self.publish()
        sums = self.values() if self._shared is None else self._shared.sums()
        for instrument in self._instruments:
            count = len(instrument.values())
            yield instrument.family(sums[:count])
            sums = sums[count:]


class Counter:
    """One series that counts up; read and written as `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class CounterFamily(Instrument):
    """Counters told apart by one label, one for each of its values from the start."""

    def __init__(self, name: str, documentation: str, *, label: str, label_values: Sequence[str]) -> None:
        super().__init__(name, documentation)
        self._label = label
        self._counters = {label_value: Counter() for label_value in label_values}

    def __getitem__(self, label_value: str) -> Counter:
        return self._counters[label_value]

    def values(self) -> list[float]:
        return [counter.value for counter in self._counters.values()]

    def family(self, values: Sequence[float]) -> Metric:
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for label_value, value in zip(self._counters, values, strict=True):
            family.add_metric([label_value], value)
        return family


class _SingleSeries(Instrument):
    """Without labels; read and written as `value`."""

    def __init__(self, name: str, documentation: str) -> None:
        super().__init__(name, documentation)
        self.value: float = 0

    def values(self) -> list[float]:
        return [self.value]


class SingleCounter(_SingleSeries):
    """A counter without labels; read and written as `value`."""

    def family(self, values: Sequence[float]) -> Metric:
        return CounterMetricFamily(self._name, self._documentation, value=values[0])


class Gauge(_SingleSeries):
    """One series that goes up and down; read and written as `value`."""

    def family(self, values: Sequence[float]) -> Metric:
        return GaugeMetricFamily(self._name, self._documentation, value=values[0])


class Histogram(Instrument):
    """Observations counted by bucket.

    Args:
        bounds: upper bounds of the buckets, inclusive, ascending; one without a bound is added.
    """

    def __init__(self, name: str, documentation: str, *, bounds: Sequence[float]) -> None:
        super().__init__(name, documentation)
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def values(self) -> list[float]:
        """The counts by bucket, not cumulative, then the sum of what was observed."""
        return [*self._counts, self._sum]

    def family(self, values: Sequence[float]) -> Metric:
        cumulative = 0.0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), values[:-1], strict=True):
            cumulative += count
            buckets.append((bound, cumulative))
        return HistogramMetricFamily(self._name, self._documentation, buckets=buckets, sum_value=values[-1])
