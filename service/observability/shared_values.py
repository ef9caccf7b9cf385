"""What every process of a service has counted, in memory that they share, so that any of them can show the sums.

Each process counts in plain attributes, which no shared memory is as fast as, and copies them into its own row now and
then. No row has two writers, so there are no locks. The multiprocess mode of `prometheus_client` would want its own,
slower instruments, a folder of files to clean up, and a merge of these files at each scrape.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Array, c_double
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedValues:
    """One row of values for each process.

    A process that has ended leaves its row behind, so sums of what only counts up never count down. What it held in a
    queue stays counted as well, which is right as long as the end of one process is the end of the service.

    Args:
        memory: float64, row after row, zero at first.
        rows: how many processes there are.
        own: the number of this one.
    """

    memory: Array[c_double]
    rows: int
    own: int

    def publish(self, values: Sequence[float]) -> None:
        """Put the values of this process, as many as a row has, where the others see them."""
        self.memory[self._row(self.own)] = list(values)

    def sums(self) -> list[float]:
        """The sum over the processes of each value, as they last published it."""
        rows = (self.memory[self._row(number)] for number in range(self.rows))
        return [sum(values) for values in zip(*rows, strict=True)]

    def _row(self, number: int) -> slice:
        length = len(self.memory) // self.rows
        return slice(number * length, (number + 1) * length)
