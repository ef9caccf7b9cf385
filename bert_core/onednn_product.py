"""Products with weights that oneDNN has laid out once, on a CPU.

Axes: T rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.activations import Activation, gelu_tanh, identity

# Activations that oneDNN applies to a product while it is in registers: name and algorithm there.
FUSED_ACTIVATIONS: Mapping[Activation, tuple[str, str]] = MappingProxyType(
    {
        identity: ("none", ""),
        F.gelu: ("gelu", "none"),
        gelu_tanh: ("gelu", "tanh"),
        F.relu: ("relu", ""),
        F.tanh: ("tanh", ""),
        torch.tanh: ("tanh", ""),
        F.silu: ("swish", ""),
        F.sigmoid: ("sigmoid", ""),
    }
)

# Up to so many rows, numbers of rows are multiples of this.
ROW_STEPS = ((8, 1), (64, 8), (128, 16), (512, 32), (1024, 64))
LARGEST_ROW_STEP = 128


def can_prepack(weight: Tensor) -> bool:
    """Whether oneDNN, as PyTorch has it, multiplies with prepacked weights of this dtype on this machine."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if weight.dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return weight.dtype == torch.float32


def product_rows(rows: int) -> int:
    """How many rows a prepacked product shall have: `rows`, or a few more.

    For each number of rows oneDNN makes machine code of its own, which takes ten times as long as the product and stays
    in memory. So only a few dozen numbers occur: all to 8, and above in steps that grow with them.
    """
    step = next((step for most, step in ROW_STEPS if rows <= most), LARGEST_ROW_STEP)
    return -(-rows // step) * step


def padded_rows(rows_TI: Tensor) -> Tensor:
    """`[T, I]` with zeros below up to `product_rows(T)`."""
    missing = product_rows(rows_TI.shape[0]) - rows_TI.shape[0]
    return F.pad(rows_TI, (0, 0, 0, missing)) if missing else rows_TI


class OneDnnProduct:
    """`activation(x W^T + b)`, or with another tensor added in place of the activation, in the dtype of `W`.

    Args:
        weight_OI, bias_O: of a dtype that `can_prepack`; the weights are copied.
        activation: fused into the product if oneDNN has it.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor, *, activation: Activation) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI, None)
        self._bias_O = bias_O
        self._activation = activation

    def __call__(self, rows_TI: Tensor, *, addend: Tensor | None = None) -> Tensor:
        """`[T, I]` to `[T, O]`, plus `addend` `[T, O]` if there is one.

        Raises:
            ValueError: an addend where there is an activation.
        """
        if addend is not None and self._activation is not identity:
            raise ValueError("addend: a product with an activation takes none")
        rows, rows_TI = len(rows_TI), rows_TI.to(self._bias_O.dtype)
        if rows == product_rows(rows):
            return self._multiply(rows_TI, addend=addend)
        return self._multiply(padded_rows(rows_TI), addend=None if addend is None else padded_rows(addend))[:rows]

    def _multiply(self, rows_TI: Tensor, *, addend: Tensor | None) -> Tensor:
        if addend is not None:
            sum_TO = torch.ops.mkldnn._linear_pointwise.binary(rows_TI, addend, self._weight, self._bias_O, "add")
            assert isinstance(sum_TO, Tensor)
            return sum_TO
        fused = FUSED_ACTIVATIONS.get(self._activation)
        name, algorithm = fused or FUSED_ACTIVATIONS[identity]
        product_TO = torch.ops.mkldnn._linear_pointwise(rows_TI, self._weight, self._bias_O, name, [], algorithm)
        assert isinstance(product_TO, Tensor)
        return product_TO if fused else self._activation(product_TO)
