"""All layers in one call of the kernel in `tile_encoder.c`, where nothing but the result is asked for.

Layer by layer as `bert_core.encoder` has it, with the same bits; but a short text takes half the time, and meanwhile
other threads have the interpreter.

Axes: T packed tokens, R wanted rows, N sequences, D hidden, A heads times their width.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.bfloat16_rows import check_rows
from bert_core.layer_norm import NormFields, NormKernel
from bert_core.packing import PackedTokens, WantedRows
from bert_core.tile_product import ProductFields, TileProduct
from bert_core.tiles import Tiles, raise_fault


class LayerFields(ctypes.Structure):
    """`layer` of `tile_encoder.c`."""

    _fields_ = (
        ("query_key_value", ProductFields),
        ("query", ProductFields),
        ("key_value", ProductFields),
        ("output", ProductFields),
        ("up", ProductFields),
        ("down", ProductFields),
        ("attention_norm", NormFields),
        ("feed_forward_norm", NormFields),
        ("heads", ctypes.c_int64),
        ("width", ctypes.c_int64),
    )


@dataclass(frozen=True, kw_only=True)
class TileLayer:
    """A layer's products and norms by the names of `LayerFields`, its heads and their width.

    Raises:
        ValueError: sizes that do not fit together.
    """

    products: Mapping[str, TileProduct]
    norms: Mapping[str, NormKernel]
    heads: int
    width: int

    def __post_init__(self) -> None:
        hidden, inner = self.hidden_size, self.heads * self.width
        right = {
            "query_key_value": (hidden, 3 * inner),
            "query": (hidden, inner),
            "key_value": (hidden, 2 * inner),
            "output": (inner, hidden),
            "up": (hidden, self.products["up"].outputs),
            "down": (self.products["up"].outputs, hidden),
        }
        for name, product in self.products.items():
            if (product.inputs, product.outputs) != right[name]:
                raise ValueError(f"{name}: {product.inputs} to {product.outputs}, where {right[name]} is needed")
        for name, norm in self.norms.items():
            if norm.width != hidden:
                raise ValueError(f"{name}: {norm.width} numbers, where rows have {hidden}")

    @property
    def hidden_size(self) -> int:
        """D."""
        return self.products["output"].outputs

    @property
    def wide_numbers(self) -> int:
        """Of each token, at most, between the layer's products: Q, K, V and context, or the middle of feed-forward."""
        return max(4 * self.heads * self.width, self.products["up"].outputs)

    def fields(self) -> LayerFields:
        """Addresses, which are good while this lives."""
        products = {name: product.fields() for name, product in self.products.items()}
        norms = {name: norm.fields() for name, norm in self.norms.items()}
        return LayerFields(heads=self.heads, width=self.width, **products, **norms)


class TileEncoder:
    """The stack.

    Args:
        layers: at least one.
        kernels: from `tiles`.

    Raises:
        ValueError: layers of different hidden sizes.
    """

    def __init__(self, layers: Sequence[TileLayer], kernels: Tiles) -> None:
        sizes = {layer.hidden_size for layer in layers}
        if len(sizes) != 1:
            raise ValueError(f"layers: of hidden sizes {sorted(sizes)}, where one is needed")
        self._width = sizes.pop()
        self._wide_numbers = max(layer.wide_numbers for layer in layers)
        self._keeps = tuple(layers)
        self._layers = (LayerFields * len(layers))(*(layer.fields() for layer in layers))
        self._team = kernels.team
        self._run = kernels.library.tile_encoder

    def __call__(self, hidden_TD: Tensor, packed: PackedTokens, *, wanted: WantedRows | None = None) -> Tensor:
        """bfloat16 `[T, D]` to the last layer's `[R, D]`, of the wanted rows, or of all.

        Raises:
            MemoryError: none left for a thread's part of the work.
            ValueError: rows of another dtype or width, not on the CPU, or in need of gradients; offsets that do not end
                with these rows, or descend; wanted rows that are not among them, or more, or not as the offsets say.
        """
        check_rows(hidden_TD, width=self._width, name="hidden")
        tokens = hidden_TD.shape[0]
        offsets_N1 = _offsets(packed.offsets_N1, end=tokens, name="offsets")
        hidden_TD = hidden_TD.clone(memory_format=torch.contiguous_format)
        sums_TD = torch.empty_like(hidden_TD)
        wide_T = hidden_TD.new_empty(tokens, self._wide_numbers)
        rows_R, wanted_offsets_N1, wanted_RD = None, None, hidden_TD
        if wanted is not None:
            rows_R = _wanted_rows(wanted.rows_R, tokens=tokens)
            wanted_offsets_N1 = _offsets(wanted.offsets_N1, end=len(rows_R), name="wanted rows' offsets")
            if len(wanted_offsets_N1) != len(offsets_N1):
                raise ValueError(f"wanted rows: of {len(wanted_offsets_N1) - 1} sequences, not {len(offsets_N1) - 1}")
            wanted_RD = hidden_TD.new_empty(len(rows_R), self._width)
        raise_fault(
            self._run(
                ctypes.addressof(self._layers),
                len(self._layers),
                hidden_TD.data_ptr(),
                offsets_N1.data_ptr(),
                len(offsets_N1) - 1,
                None if rows_R is None else rows_R.data_ptr(),
                None if wanted_offsets_N1 is None else wanted_offsets_N1.data_ptr(),
                wanted_RD.data_ptr(),
                sums_TD.data_ptr(),
                wide_T.data_ptr(),
                self._team,
                torch.get_num_threads(),
            )
        )
        return wanted_RD


def _offsets(offsets_N1: Tensor, *, end: int, name: str) -> Tensor:
    """int32 `[N + 1]`, side by side. That they ascend is for the kernel to see."""
    if offsets_N1.device.type != "cpu" or offsets_N1.dim() != 1 or not len(offsets_N1):
        raise ValueError(f"{name}: {list(offsets_N1.shape)} on {offsets_N1.device}, where [N + 1] on the CPU is needed")
    if int(offsets_N1[-1]) != end:
        raise ValueError(f"{name}: they end with {int(offsets_N1[-1])}, where there are {end} rows")
    return offsets_N1.contiguous()


def _wanted_rows(rows_R: Tensor, *, tokens: int) -> Tensor:
    if rows_R.dtype != torch.int64 or rows_R.device.type != "cpu" or rows_R.dim() != 1:
        found = f"{rows_R.dtype} {list(rows_R.shape)} on {rows_R.device}"
        raise ValueError(f"wanted rows: {found}, where int64 [R] on the CPU is needed")
    if len(rows_R) > tokens:
        raise ValueError(f"wanted rows: {len(rows_R)}, where there are {tokens} tokens")
    if len(rows_R) and not 0 <= int(rows_R.min()) <= int(rows_R.max()) < tokens:
        raise ValueError(f"wanted rows: not all among the {tokens} tokens")
    return rows_R.contiguous()
