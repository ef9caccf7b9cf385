"""The one linear layer of the inference path: product, bias and activation together.

Axes: T rows, I inputs, O outputs.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.activations import Activation, identity


class Linear(nn.Linear):
    """`activation(x W^T + b)` over rows `[T, I]`, giving `[T, O]`."""

    def __init__(self, in_features: int, out_features: int, *, activation: Activation = identity) -> None:
        super().__init__(in_features, out_features)
        self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        """`[…, I]` to `[…, O]`."""
        return self.activation(super().forward(input))

    def outputs(self, rows_TI: Tensor, wanted: slice) -> Tensor:
        """Only the wanted outputs, without the activation: what part of a fused projection needs."""
        return F.linear(rows_TI, self.weight[wanted], self.bias[wanted])
