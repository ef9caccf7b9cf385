"""A linear layer of bfloat16 weights with float32 results on a CPU's matrix tiles (AMX): the kernel in `tile_linear.c`.

Axes: M rows, I inputs, O outputs.
"""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.tiles import NUMBERS_IN_A_ROW, ROWS, Tiles, tiles

# The kernel makes as many outputs at a time as two tiles have rows.
_OUTPUTS = 2 * ROWS


class TileLinear(nn.Module):
    """`x W^T + b` for inference, summed and given in float32; `x` and `W` are bfloat16.

    Args:
        linear: whose bfloat16 weights, on the CPU, are laid out anew.
        kernels: from `tiles`.
    """

    bias: Tensor
    tiles: Tensor

    def __init__(self, linear: nn.Linear, kernels: Tiles) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        missing = -linear.out_features % _OUTPUTS
        self.register_buffer("bias", F.pad(linear.bias.detach().float(), (0, missing)))
        # Second factors of products of tiles: each row holds pairs of neighbouring inputs of 16 outputs.
        weight_OI = F.pad(linear.weight.detach(), (0, 0, 0, missing))
        halves = NUMBERS_IN_A_ROW // 2
        pairs = weight_OI.view(-1, ROWS, linear.in_features // NUMBERS_IN_A_ROW, halves, 2)
        self.register_buffer("tiles", pairs.permute(0, 2, 3, 1, 4).contiguous())
        self._team = kernels.team
        self._multiply = kernels.library.tile_linear
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._multiply.argtypes = [*[pointer] * 4, *[number] * 3, pointer, ctypes.c_int]
        self._multiply.restype = None

    def forward(self, rows_MI: Tensor) -> Tensor:
        """bfloat16 `[M, I]` to float32 `[M, O]`."""
        rows_MI = rows_MI.contiguous()
        results_MO = rows_MI.new_empty(len(rows_MI), len(self.bias), dtype=torch.float32)
        if len(rows_MI):
            self._multiply(
                rows_MI.data_ptr(),
                self.tiles.data_ptr(),
                self.bias.data_ptr(),
                results_MO.data_ptr(),
                len(rows_MI),
                self.in_features,
                len(self.bias),
                self._team,
                torch.get_num_threads(),
            )
        return results_MO[:, : self.out_features]


def tile_linear(linear: nn.Linear) -> TileLinear | None:
    """The layer on tiles; None where they cannot serve it: another dtype or device, or inputs that fill no rows."""
    kernels = tiles()
    weight = linear.weight
    if kernels is None or weight.device.type != "cpu" or weight.dtype != torch.bfloat16:
        return None
    return TileLinear(linear, kernels) if linear.in_features % NUMBERS_IN_A_ROW == 0 else None
