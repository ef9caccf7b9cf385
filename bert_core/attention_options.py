"""What a caller may ask of attention beyond the plain result."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionOptions:
    """What the fast kernels cannot do; asking for any of it takes the explicit softmax.

    head_mask_H: factor for the attention probabilities of each head, original heads counted.
    pair_mask_NLL: bool, which query may see which key; all sequences then have L tokens.
    weights: give the attention probabilities back.
    """

    head_mask_H: Tensor | None = None
    pair_mask_NLL: Tensor | None = None
    weights: bool = False

    @property
    def explicit(self) -> bool:
        """Whether the explicit softmax is needed."""
        return self.weights or self.head_mask_H is not None or self.pair_mask_NLL is not None
