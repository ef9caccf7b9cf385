"""Attention over packed bfloat16 sequences on a CPU's matrix tiles (AMX): the kernel in `tile_attention.c`.

PyTorch's kernel multiplies and exponentiates one head of one sequence at a time and takes two to six times as long. It
serves where there are no tiles, and where the package was installed without a C compiler.

Axes: R rows to answer for, T packed tokens, N sequences, H heads, K head width, A = H * K.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch
from torch import Tensor

NUMBERS_IN_A_ROW = 32
"""bfloat16 numbers in a row of a tile; head widths are multiples of it."""


class TileAttention:
    """The kernel, loaded."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._attend = library.tile_attention
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._attend.argtypes = [*[pointer] * 4, *[number] * 3, *[pointer] * 2, *[number] * 3]
        self._attend.argtypes += [ctypes.c_float, pointer, ctypes.c_int]
        # PyTorch's own team of threads, whatever implements it: two teams would wait actively for each other's cores.
        team = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
        self._parallel = ctypes.cast(team, pointer) if team is not None else None

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
            self._parallel,
            torch.get_num_threads(),
        )
        if failed:
            raise MemoryError("attention: no memory for scores")
        return context_RA


@cache
def tile_attention() -> TileAttention | None:
    """The kernel, or None where it was not built or the processor (or its system) has no tiles of bfloat16."""
    folder = Path(__file__).parent
    built = next((path for end in EXTENSION_SUFFIXES if (path := folder / f"_tile_attention{end}").is_file()), None)
    if built is None:
        return None
    library = ctypes.CDLL(str(built))
    works: Callable[[], int] = library.tile_attention_works
    return TileAttention(library) if works() else None
