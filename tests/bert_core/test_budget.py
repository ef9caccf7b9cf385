"""Groups keep their order and their budget, and each is as long as it can be."""

from __future__ import annotations

import pytest

from bert_core.budget import groups_within


@pytest.mark.parametrize(
    ("costs", "groups"),
    [
        ([], []),
        ([3, 4], [[3, 4]]),
        ([3, 4, 1], [[3, 4], [1]]),
        ([9, 1, 6, 1], [[9], [1, 6], [1]]),
        ([0, 7, 0, 8], [[0, 7, 0], [8]]),
    ],
)
def test_groups_of_at_most_seven(costs: list[int], groups: list[list[int]]) -> None:
    assert list(groups_within(iter(costs), budget=7, cost=lambda cost: cost)) == groups
