from __future__ import annotations

import math

import pytest
import torch

from tests.device_checks import Check, compared, relative_gap


def test_the_gap_is_in_units_of_the_root_mean_square() -> None:
    right = torch.tensor([[3.0, -3.0, 3.0]])
    assert relative_gap(right + torch.tensor([0.0, 0.6, -0.3]), right) == pytest.approx(0.2)
    assert relative_gap(torch.zeros(0, 7), torch.zeros(0, 7)) == 0


def test_a_gap_that_is_no_number_or_over_the_bound_does_not_hold() -> None:
    assert Check(name="x", gap=0.2, bound=0.2).holds
    assert not Check(name="x", gap=0.21, bound=0.2).holds
    assert not Check(name="x", gap=math.nan, bound=0.2).holds
    assert str(Check(name="x", gap=math.nan, bound=0.2)).startswith("MISS")


def test_names_and_shapes_must_agree() -> None:
    ours = {"a": torch.ones(3)}
    assert [check.name for check in compared(ours, ours, name="n", bound=0)] == ["n: a"]
    with pytest.raises(AssertionError):
        compared(ours, {"b": torch.ones(3)}, name="n", bound=0)
    with pytest.raises(AssertionError):
        compared(ours, {"a": torch.ones(4)}, name="n", bound=0)
