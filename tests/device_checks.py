"""How tests compare what a device computes in some dtype with float32 on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

GAP_BOUNDS: Mapping[torch.dtype, float] = {torch.float32: 1e-4, torch.float16: 0.03, torch.bfloat16: 0.2}
"""Largest difference allowed, in units of the root mean square of the right values.

It is the worst single number of tensors of random weights; a lost mask or a swapped axis gives more than 1.
"""

GRADIENT_BOUND = 1e-3
"""The same for gradients, in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A gap between what should be equal, and how large it may be."""

    name: str
    gap: float
    bound: float

    @property
    def holds(self) -> bool:
        """False for a gap that is not a number."""
        return self.gap <= self.bound

    def __str__(self) -> str:
        return f"{'ok  ' if self.holds else 'MISS'} {self.gap:10.2e} <= {self.bound:8.1e}  {self.name}"


def relative_gap(ours: Tensor, right: Tensor) -> float:
    """Largest absolute difference over the root mean square of `right`; shapes must agree."""
    assert ours.shape == right.shape, (ours.shape, right.shape)
    if not right.numel():
        return 0.0
    ours, right = ours.detach().double().cpu(), right.detach().double().cpu()
    return float((ours - right).abs().max() / right.square().mean().sqrt().clamp(min=1e-30))


def compared(ours: Mapping[str, Tensor], right: Mapping[str, Tensor], *, name: str, bound: float) -> list[Check]:
    """One check for each tensor; both must have the same names."""
    assert ours.keys() == right.keys()
    return [Check(name=f"{name}: {key}", gap=relative_gap(ours[key], right[key]), bound=bound) for key in right]
