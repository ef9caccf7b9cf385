"""All layers in one call of the kernel in `tile_encoder.c`, where nothing but the result is asked for.

Layer by layer as `bert_core.encoder` has it, with the same bits; but a short text takes half the time, and meanwhile
other threads have the interpreter.

Axes: T packed tokens, R wanted rows, N sequences, D hidden, H heads, K head width, A = H * K.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.bfloat16_rows import check_rows
from bert_core.layer_norm import NormFields
from bert_core.packing import PackedTokens, WantedRows
from bert_core.tile_attention import raise_fault
from bert_core.tile_product import ProductFields
from bert_core.tiles import Tiles


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
    """A layer's products by the names of `LayerFields`, its norms, heads and their width.

    Whoever makes a `TileEncoder` of it keeps what the addresses are of.
    """

    products: dict[str, ProductFields]
    norms: dict[str, NormFields]
    heads: int
    width: int

    @property
    def wide_numbers(self) -> int:
        """Of each token, at most, between the layer's products: Q, K, V and context, or the middle of feed-forward."""
        middle: int = self.products["up"].outputs
        return max(4 * self.heads * self.width, middle)


class TileEncoder:
    """The stack.

    Args:
        layers: at least one; all as wide.
        kernels: from `tiles`.
    """

    def __init__(self, layers: Sequence[TileLayer], kernels: Tiles) -> None:
        fields = [
            LayerFields(heads=layer.heads, width=layer.width, **layer.products, **layer.norms) for layer in layers
        ]
        self._layers = (LayerFields * len(fields))(*fields)
        self._width = layers[0].products["down"].outputs
        self._wide_numbers = max(layer.wide_numbers for layer in layers)
        self._team = kernels.team
        self._run = kernels.library.tile_encoder
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._run.argtypes = [pointer, number, pointer, number, pointer, number, *[pointer] * 6, ctypes.c_int]

    def __call__(self, hidden_TD: Tensor, packed: PackedTokens, *, wanted: WantedRows | None = None) -> Tensor:
        """bfloat16 `[T, D]` to the last layer's `[R, D]`, of the wanted rows, or of all.

        Raises:
            MemoryError: none left for a thread's part of the work.
            ValueError: rows of another dtype or width, not on the CPU, or in need of gradients; offsets that are not
                of these rows.
        """
        check_rows(hidden_TD, width=self._width, name="hidden")
        tokens = hidden_TD.shape[0]
        hidden_TD = hidden_TD.clone(memory_format=torch.contiguous_format)
        sums_TD = torch.empty_like(hidden_TD)
        wide_T = hidden_TD.new_empty(tokens, self._wide_numbers)
        offsets_N1 = packed.offsets_N1.contiguous()
        wanted_RD, rows_R, wanted_offsets_N1 = hidden_TD, None, None
        if wanted is not None:
            rows_R, wanted_offsets_N1 = wanted.rows_R.contiguous(), wanted.offsets_N1.contiguous()
            wanted_RD = hidden_TD.new_empty(rows_R.shape[0], self._width)
            count = rows_R.shape[0]
            if (
                rows_R.dtype != torch.int64
                or wanted_offsets_N1.shape != offsets_N1.shape
                or count > tokens
                or int(wanted_offsets_N1[-1]) != count
            ):
                raise ValueError("wanted rows: not int64, or not as many as their offsets say")
        raise_fault(
            self._run(
                ctypes.addressof(self._layers),
                len(self._layers),
                hidden_TD.data_ptr(),
                tokens,
                offsets_N1.data_ptr(),
                offsets_N1.shape[0] - 1,
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
