"""Products with bfloat16 weights on a CPU's matrix tiles (AMX): the kernel in `tile_product.c`.

Axes: M rows, I inputs, O outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from math import log, pi, sqrt
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.activations import Activation, gelu_tanh, identity
from bert_core.bfloat16_rows import check_rows, with_neighbouring_numbers
from bert_core.tiles import NUMBERS_IN_A_ROW, ROWS, Tiles, tiles

# The kernel makes as many outputs at a time as two tiles have rows.
_OUTPUTS = 2 * ROWS

_GELU_TANH = 2 * sqrt(2 / pi) / log(2)

# Activations that the kernel applies to sums: x * logistic(ln(2) * x * (a + b x^2 + c x^4)). Two are of that form. The
# exact gelu is approached to 6e-5, and where its result is 0.02 or more in size to a fifth of what rounding changes.
LOGISTIC_ACTIVATIONS: Mapping[Activation, tuple[float, float, float]] = MappingProxyType(
    {
        F.gelu: (2.3001459, 0.10751094, -0.0011102364),
        gelu_tanh: (_GELU_TANH, 0.044715 * _GELU_TANH, 0.0),
        F.silu: (1 / log(2), 0.0, 0.0),
    }
)


class ProductFields(ctypes.Structure):
    """`product` of `tile_encoder.c`: addresses of what a `TileProduct` holds."""

    _fields_ = (
        ("tiles", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("logistic", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
    )


class TileProduct:
    """`activation(x W^T + b)` of bfloat16 numbers, or with another tensor added in its place, summed in float32.

    Args:
        weight_OI, bias_O: bfloat16 on the CPU, copied; I is a multiple of `NUMBERS_IN_A_ROW`.
        activation: fused into the product if it is one of `LOGISTIC_ACTIVATIONS` and results are bfloat16.
        results: their dtype, bfloat16 or float32.
        kernels: from `tiles`.

    Attributes:
        inputs, outputs: I and O.
    """

    def __init__(
        self, weight_OI: Tensor, bias_O: Tensor, *, activation: Activation, results: torch.dtype, kernels: Tiles
    ) -> None:
        self.outputs, self.inputs = weight_OI.shape
        missing = -self.outputs % _OUTPUTS
        # Second factors of products of tiles: each row holds pairs of neighbouring inputs of 16 outputs.
        padded_OI = F.pad(weight_OI, (0, 0, 0, missing))
        pairs = padded_OI.reshape(-1, ROWS, self.inputs // NUMBERS_IN_A_ROW, NUMBERS_IN_A_ROW // 2, 2)
        self._tiles = pairs.permute(0, 2, 3, 1, 4).contiguous()
        self._bias_O = F.pad(bias_O.float(), (0, missing))
        self._results = results
        self._activation = activation
        terms = LOGISTIC_ACTIVATIONS.get(activation) if results == torch.bfloat16 else None
        self._logistic = None if terms is None else torch.tensor(terms, dtype=torch.float32, device="cpu")
        self._team = kernels.team
        self._multiply = kernels.library.tile_product

    def __call__(self, rows_MI: Tensor, *, addend: Tensor | None = None) -> Tensor:
        """bfloat16 `[M, I]` to `[M, O]`, plus bfloat16 `addend` `[M, O]` if there is one.

        Raises:
            ValueError: rows or an addend of another dtype or shape, not on the CPU or in need of gradients; an addend
                where there is an activation.
        """
        check_rows(rows_MI, width=self.inputs, name="rows")
        if addend is not None:
            check_rows(addend, width=self.outputs, count=len(rows_MI), name="addend")
            if self._activation is not identity:
                raise ValueError("addend: a product with an activation takes none")
            if self._results != torch.bfloat16 or self._has_padding:
                return self(rows_MI) + addend
        rows_MI = with_neighbouring_numbers(rows_MI)
        addend = None if addend is None else with_neighbouring_numbers(addend)
        width = len(self._bias_O)
        results_MO = rows_MI.new_empty(len(rows_MI), width, dtype=self._results)
        self._multiply(
            rows_MI.data_ptr(),
            self._tiles.data_ptr(),
            self._bias_O.data_ptr(),
            None if addend is None else addend.data_ptr(),
            None if self._logistic is None else self._logistic.data_ptr(),
            results_MO.data_ptr(),
            len(rows_MI),
            self.inputs,
            width,
            rows_MI.stride(0),
            0 if addend is None else addend.stride(0),
            width,
            self._results == torch.float32,
            self._team,
            torch.get_num_threads(),
        )
        if self._has_padding:
            results_MO = results_MO[:, : self.outputs]
        return results_MO if self._logistic is not None else self._activation(results_MO)

    @property
    def _has_padding(self) -> bool:
        return len(self._bias_O) != self.outputs

    @property
    def is_all(self) -> bool:
        """Whether the kernel's results, bfloat16, are the whole answer: `fields` are good for another kernel."""
        is_activated = self._logistic is not None or self._activation is identity
        return self._results == torch.bfloat16 and is_activated and not self._has_padding

    def fields(self) -> ProductFields:
        """Addresses, which are good while this lives."""
        logistic = None if self._logistic is None else self._logistic.data_ptr()
        return ProductFields(self._tiles.data_ptr(), self._bias_O.data_ptr(), logistic, self.inputs, len(self._bias_O))


def tile_product(
    weight_OI: Tensor, bias_O: Tensor, *, activation: Activation, results: torch.dtype
) -> TileProduct | None:
    """The product, or None where tiles cannot serve: other dtypes or devices, or inputs that fill no rows of a tile."""
    kernels = tiles()
    if kernels is None or weight_OI.device.type != "cpu" or weight_OI.dtype != torch.bfloat16:
        return None
    if weight_OI.shape[1] % NUMBERS_IN_A_ROW or results not in (torch.bfloat16, torch.float32):
        return None
    return TileProduct(weight_OI, bias_O, activation=activation, results=results, kernels=kernels)
