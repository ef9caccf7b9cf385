"""A linear layer of bfloat16 weights with float32 results on a CPU's matrix tiles (AMX): the kernel in `tile_linear.c`.

Axes: M rows, I inputs, O outputs.
"""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.linear import Linear
from bert_core.tiles import NUMBERS_IN_A_ROW, ROWS, Tiles, tiles

# The kernel makes as many outputs at a time as two tiles have rows.
_OUTPUTS = 2 * ROWS


class TileLinear(Linear):
    """`x W^T + b` for inference, summed and given in float32; `x`, `W` and `b` are bfloat16.

    Args:
        linear: whose weights, on the CPU, are laid out anew. It keeps its own.
        kernels: from `tiles`.
    """

    def __init__(self, linear: Linear, kernels: Tiles) -> None:
        with torch.device("meta"):
            super().__init__(linear.in_features, linear.out_features)
        self.register_parameter("weight", None)
        self.bias = nn.Parameter(linear.bias.detach().clone(), requires_grad=False)
        missing = -linear.out_features % _OUTPUTS
        # Second factors of products of tiles: each row holds pairs of neighbouring inputs of 16 outputs.
        weight_OI = F.pad(linear.weight.detach(), (0, 0, 0, missing))
        parts = linear.in_features // NUMBERS_IN_A_ROW
        pairs = weight_OI.reshape(-1, ROWS, parts, NUMBERS_IN_A_ROW // 2, 2)
        self._packed = pairs.permute(0, 2, 3, 1, 4).contiguous()
        self._padded_bias_O = F.pad(linear.bias.detach().float(), (0, missing))
        self._team = kernels.team
        self._multiply = kernels.library.tile_linear
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._multiply.argtypes = [*[pointer] * 4, *[number] * 3, pointer, ctypes.c_int]
        self._multiply.restype = None

    def forward(self, input: Tensor, *, addend: Tensor | None = None) -> Tensor:
        """bfloat16 `[M, I]` to float32 `[M, O]`, plus `addend` `[M, O]` if there is one.

        Raises:
            ValueError: rows of another dtype or width, or not on the CPU.
        """
        if input.dtype != torch.bfloat16 or input.device.type != "cpu" or input.shape[1:] != (self.in_features,):
            raise ValueError(f"rows: {input.dtype} {list(input.shape)} on {input.device} are not for this layer")
        assert self._packed is not None
        rows_MI = input.contiguous()
        results_MO = rows_MI.new_empty(len(rows_MI), len(self._padded_bias_O), dtype=torch.float32)
        if len(rows_MI):
            self._multiply(
                rows_MI.data_ptr(),
                self._packed.data_ptr(),
                self._padded_bias_O.data_ptr(),
                results_MO.data_ptr(),
                len(rows_MI),
                self.in_features,
                len(self._padded_bias_O),
                self._team,
                torch.get_num_threads(),
            )
        results_MO = results_MO[:, : self.out_features]
        return results_MO if addend is None else results_MO + addend


def tile_linear(linear: Linear) -> TileLinear | None:
    """The layer on tiles; None where they cannot serve it: another dtype or device, or inputs that fill no rows."""
    kernels = tiles()
    weight = linear.weight
    if kernels is None or weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return None
    return TileLinear(linear, kernels) if linear.in_features % NUMBERS_IN_A_ROW == 0 else None
