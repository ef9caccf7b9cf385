"""What kernels in C ask of the rows that they are given by address.

Axes: M rows, X numbers in each.
"""

from __future__ import annotations

import torch
from torch import Tensor


def check_rows(rows_MX: Tensor, *, width: int, name: str, count: int | None = None) -> None:
    """Refuse what a kernel would misread.

    Raises:
        ValueError: not bfloat16 `[M, width]` on the CPU, of another count of rows, or in need of gradients.
    """
    fits = rows_MX.dim() == 2 and rows_MX.shape[1] == width and count in (None, rows_MX.shape[0])
    if not fits or rows_MX.dtype != torch.bfloat16 or rows_MX.device.type != "cpu":
        found = f"{rows_MX.dtype} {list(rows_MX.shape)} on {rows_MX.device}"
        needed = f"bfloat16 [{'M' if count is None else count}, {width}] on the CPU"
        raise ValueError(f"{name}: {found}, where {needed} is needed")
    if rows_MX.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: prepacked weights give no gradients")


def with_neighbouring_numbers(rows_MX: Tensor) -> Tensor:
    """The same, laid out so that a row's numbers are neighbours; rows may be any distance apart."""
    return rows_MX if rows_MX.stride(1) == 1 else rows_MX.contiguous()
