"""Items in their order, in groups of bounded cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

ItemT = TypeVar("ItemT")


def groups_within(items: Iterable[ItemT], *, budget: int, cost: Callable[[ItemT], int]) -> Iterator[list[ItemT]]:
    """Each group as long as its items cost at most `budget` together; one that costs more is a group of its own."""
    group: list[ItemT] = []
    spent = 0
    for item in items:
        price = cost(item)
        if group and spent + price > budget:
            yield group
            group, spent = [], 0
        group.append(item)
        spent += price
    if group:
        yield group
