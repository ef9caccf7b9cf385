"""LayerNorm (Ba, Kiros and Hinton 2016), and the kernel in `layer_norm.c` for bfloat16 rows on a CPU.

Axes: M rows, D their width.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn

from bert_core.bfloat16_rows import check_rows, with_neighbouring_numbers
from bert_core.tiles import NUMBERS_IN_A_ROW, Tiles, tiles


class NormFields(ctypes.Structure):
    """`norm` of `tile_encoder.c`: addresses of what a `NormKernel` holds."""

    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("epsilon", ctypes.c_float))


class LayerNorm(nn.LayerNorm):
    """`(x - mean) / sqrt(variance + eps) * w + b` over the last axis."""

    def __init__(self, width: int, *, eps: float) -> None:
        super().__init__(width, eps=eps)
        self._prepacked: NormKernel | None = None

    def forward(self, input: Tensor) -> Tensor:
        """`[…, D]` to the same; rows `[M, D]` once it is prepacked."""
        return super().forward(input) if self._prepacked is None else self._prepacked(input)

    def prepack(self) -> None:
        """Use the kernel, if it can serve: bfloat16 on a CPU with tiles. For inference alone: it copies the weights."""
        kernels = tiles()
        weight = self.weight
        if self._prepacked is not None or kernels is None or len(weight) % NUMBERS_IN_A_ROW:
            return
        if weight.dtype == torch.bfloat16 and weight.device.type == "cpu":
            self._prepacked = NormKernel(weight.detach(), self.bias.detach(), eps=self.eps, kernels=kernels)

    def on_tiles(self) -> NormKernel | None:
        """The kernel, if it serves."""
        return self._prepacked


class NormKernel:
    """Of bfloat16 rows, with sums and weights in float32.

    Args:
        weight_D, bias_D: copied; D is a multiple of `NUMBERS_IN_A_ROW`.
        eps: added to the variance.
        kernels: from `tiles`.
    """

    def __init__(self, weight_D: Tensor, bias_D: Tensor, *, eps: float, kernels: Tiles) -> None:
        self._weight_D, self._bias_D, self._eps = weight_D.float(), bias_D.float(), eps
        self._team = kernels.team
        self._normalize = kernels.library.layer_norm

    @property
    def width(self) -> int:
        """D."""
        return len(self._weight_D)

    def __call__(self, rows_MD: Tensor) -> Tensor:
        """bfloat16 `[M, D]` to the same.

        Raises:
            ValueError: rows of another dtype or width, not on the CPU, or in need of gradients.
        """
        check_rows(rows_MD, width=self.width, name="rows")
        rows_MD = with_neighbouring_numbers(rows_MD)
        results_MD = rows_MD.new_empty(len(rows_MD), self.width)
        self._normalize(
            rows_MD.data_ptr(),
            self._weight_D.data_ptr(),
            self._bias_D.data_ptr(),
            results_MD.data_ptr(),
            len(rows_MD),
            self.width,
            rows_MD.stride(0),
            self._eps,
            self._team,
            torch.get_num_threads(),
        )
        return results_MD

    def fields(self) -> NormFields:
        """Addresses, which are good while this lives."""
        return NormFields(self._weight_D.data_ptr(), self._bias_D.data_ptr(), self._eps)
