"""The one linear layer of the inference path: product, bias and activation together.

Axes: T rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


class Linear(nn.Linear):
    """`activation(x W^T + b)` over rows `[T, I]`, giving `[T, O]`."""

    def __init__(self, in_features: int, out_features: int, *, activation: Activation = identity) -> None:
        super().__init__(in_features, out_features)
        self.activation = activation
        self._packed: Tensor | None = None

    def forward(self, input: Tensor, *, addend: Tensor | None = None) -> Tensor:
        """`[T, I]` to `[T, O]`, plus `addend` `[T, O]` if there is one; any leading axes until it is prepacked."""
        if self._packed is None:
            output = self.activation(super().forward(input))
            return output if addend is None else output + addend
        rows = input.shape[0]
        if rows != product_rows(rows):
            more = self(padded_rows(input), addend=None if addend is None else padded_rows(addend))
            assert isinstance(more, Tensor)
            return more[:rows]
        if addend is not None:
            assert self.activation is identity, "a residual sum has no activation"
            sum_TO = torch.ops.mkldnn._linear_pointwise.binary(input, addend, self._packed, self.bias, "add")
            assert isinstance(sum_TO, Tensor)
            return sum_TO
        fused = FUSED_ACTIVATIONS.get(self.activation)
        name, algorithm = fused or FUSED_ACTIVATIONS[identity]
        product_TO = torch.ops.mkldnn._linear_pointwise(input, self._packed, self.bias, name, [], algorithm)
        assert isinstance(product_TO, Tensor)
        return product_TO if fused else self.activation(product_TO)

    @property
    def is_prepacked(self) -> bool:
        """Whether the weights are laid out for oneDNN."""
        return self._packed is not None

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

    def prepack(self) -> None:
        """Reorder the weight once into the layout that oneDNN multiplies with, and give up the plain one.

        For inference alone. Where oneDNN cannot do it (`can_prepack`), nothing changes. Results are
        equal to the dtype's rounding.
        """
        if self._packed is None and can_prepack(self.weight):
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
            self.register_parameter("weight", None)
