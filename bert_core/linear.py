"""The one linear layer: product, bias and activation together, and with them a residual sum.

Axes: T rows, I inputs, O outputs.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.activations import Activation, identity
from bert_core.onednn_product import OneDnnProduct, can_prepack
from bert_core.tile_product import TileProduct, tile_product


class Linear(nn.Linear):
    """`activation(x W^T + b)` over rows `[T, I]`, giving `[T, O]`."""

    def __init__(self, in_features: int, out_features: int, *, activation: Activation = identity) -> None:
        super().__init__(in_features, out_features)
        self.activation = activation
        self._prepacked: TileProduct | OneDnnProduct | None = None

    def forward(self, input: Tensor, *, addend: Tensor | None = None) -> Tensor:
        """`[T, I]` to `[T, O]`, plus `addend` `[T, O]` if there is one; any leading axes until it is prepacked."""
        if self._prepacked is not None:
            return self._prepacked(input, addend=addend)
        output = self.activation(super().forward(input))
        return output if addend is None else output + addend

    @property
    def wants_padded_rows(self) -> bool:
        """Whether it is prepacked in the way that is best served by `padded_rows`."""
        return isinstance(self._prepacked, OneDnnProduct)

    def on_tiles(self) -> TileProduct | None:
        """The kernel for tiles, if it serves and is all of the layer."""
        return self._prepacked if isinstance(self._prepacked, TileProduct) and self._prepacked.is_all else None

    def outputs(self, rows_TI: Tensor, wanted: slice) -> Tensor:
        """Only the wanted outputs, without the activation: what part of a fused projection needs."""
        return F.linear(rows_TI, self.weight[wanted], self.bias[wanted])

    def part(self, outputs: slice) -> Linear:
        """A layer that gives only these outputs, with a copy of their weights."""
        with torch.device("meta"):
            part = Linear(self.in_features, len(range(self.out_features)[outputs]), activation=self.activation)
        part.weight = nn.Parameter(self.weight.detach()[outputs].clone(), requires_grad=False)
        part.bias = nn.Parameter(self.bias.detach()[outputs].clone(), requires_grad=False)
        return part

    def prepack(self, *, results: torch.dtype | None = None) -> None:
        """Lay the weight out once as the fastest product of this machine reads it, and give up the plain one.

        For inference alone. Where there is no such product (`can_prepack`), nothing changes. Results are equal to the
        dtype's rounding.

        Args:
            results: their dtype, if it is not that of the weights; then rows are converted to what the product takes.
        """
        weight, bias = self.weight, self.bias
        if self._prepacked is not None or not can_prepack(weight):
            return
        results = results or weight.dtype
        self._prepacked = tile_product(weight.detach(), bias.detach(), activation=self.activation, results=results)
        if self._prepacked is None:
            parts = weight.detach().to(results), bias.detach().to(results)
            self._prepacked = OneDnnProduct(*parts, activation=self.activation)
        self.register_parameter("weight", None)
