"""Attention over packed bfloat16 sequences on a CPU's matrix tiles (AMX): the kernel in `tile_attention.c`.

PyTorch's kernel, which serves where there are no tiles, takes two to six times as long.

Axes: R rows to answer for, T packed tokens, N sequences, H heads, K head width, A = H * K.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from bert_core.tiles import NUMBERS_IN_A_ROW, Tiles, raise_fault, tiles


class TileAttention:
    """The kernel. Head widths are multiples of `NUMBERS_IN_A_ROW`."""

    def __init__(self, kernels: Tiles) -> None:
        self._team = kernels.team
        self._attend = kernels.library.tile_attention

    def __call__(
        self, q_RHK: Tensor, k_THK: Tensor, v_THK: Tensor, *, query_offsets_N1: Tensor, key_offsets_N1: Tensor
    ) -> Tensor:
        """Context `[R, A]`, bfloat16: for each sequence and head softmax(Q K^T / sqrt(K)) V.

        Args:
            q_RHK, k_THK, v_THK: bfloat16 on the CPU; heads lie side by side in a row, keys and values alike.
            query_offsets_N1, key_offsets_N1: int32 on the CPU; where each sequence begins and ends. Rows beyond are
                padding and answered by zeros.

        Raises:
            MemoryError: none left for a thread's part of the work.
            ValueError: tensors that do not fit together, or not the kernel.
        """
        rows, heads, width = q_RHK.shape
        answered, attended = int(query_offsets_N1[-1]), int(key_offsets_N1[-1])
        if not (
            all(one.dtype == torch.bfloat16 and one.stride()[1:] == (width, 1) for one in (q_RHK, k_THK, v_THK))
            and all(one.dtype == torch.int32 and one.is_contiguous() for one in (query_offsets_N1, key_offsets_N1))
            and width % NUMBERS_IN_A_ROW == 0
            and k_THK.stride() == v_THK.stride()
            and k_THK.shape[1:] == v_THK.shape[1:] == (heads, width)
            and len(query_offsets_N1) == len(key_offsets_N1)
            and answered <= rows
            and attended <= min(len(k_THK), len(v_THK))
        ):
            raise ValueError(f"attention: {answered} queries and {attended} keys do not fit these tensors")
        context_RA = q_RHK.new_empty(rows, heads * width)
        context_RA[answered:] = 0
        fault = self._attend(
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
            self._team,
            torch.get_num_threads(),
        )
        raise_fault(fault)
        return context_RA


@cache
def tile_attention() -> TileAttention | None:
    """The kernel, or None where there are no tiles or it was not built."""
    kernels = tiles()
    return None if kernels is None else TileAttention(kernels)
