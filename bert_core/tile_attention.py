"""Attention over packed bfloat16 sequences on a CPU's matrix tiles (AMX): the kernel in `tile_attention.c`.

PyTorch's kernel multiplies and exponentiates one head of one sequence at a time and takes two to six times as long. It
serves where there are no tiles.

Axes: R rows to answer for, T packed tokens, N sequences, H heads, K head width, A = H * K.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from bert_core.tiles import Tiles, tiles


class TileAttention:
    """The kernel. Head widths are multiples of `NUMBERS_IN_A_ROW`."""

    def __init__(self, kernels: Tiles) -> None:
        self._team = kernels.team
        self._attend = kernels.library.tile_attention
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._attend.argtypes = [*[pointer] * 4, *[number] * 3, *[pointer] * 2, *[number] * 3]
        self._attend.argtypes += [ctypes.c_float, pointer, ctypes.c_int]

    def __call__(
        self, q_RHK: Tensor, k_THK: Tensor, v_THK: Tensor, *, query_offsets_N1: Tensor, key_offsets_N1: Tensor
    ) -> Tensor:
        """Context `[R, A]`, bfloat16: for each sequence and head softmax(Q K^T / sqrt(K)) V.

        Args:
            q_RHK, k_THK, v_THK: bfloat16 on the CPU; heads lie side by side in a row, keys and values alike.
            query_offsets_N1, key_offsets_N1: int32 on the CPU; where each sequence begins and ends. Rows beyond are
                padding and answered by zeros.

        Raises:
            MemoryError: no memory for the scores of 32 queries.
        """
        rows, heads, width = q_RHK.shape
        context_RA = q_RHK.new_empty(rows, heads * width)
        context_RA[int(query_offsets_N1[-1]) :] = 0
        failed = self._attend(
            q_RHK.data_ptr(),
            k_THK.data_ptr(),
            v_THK.data_ptr(),
            context_RA.data_ptr(),
            q_RHK.stride(0),
            k_THK.stride(0),
            context_RA.stride(0),
            query_offsets_N1.data_ptr(),
            key_offsets_N1.data_ptr(),
            len(key_offsets_N1) - 1,
            heads,
            width,
            width**-0.5,
            self._team,
            torch.get_num_threads(),
        )
        if failed:
            raise MemoryError("attention: no memory for scores")
        return context_RA


@cache
def tile_attention() -> TileAttention | None:
    """The kernel, or None where there are no tiles or it was not built."""
    kernels = tiles()
    return None if kernels is None else TileAttention(kernels)
