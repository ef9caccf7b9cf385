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
    shape = (rows_MX.shape[0] if count is None else count, width)
    if rows_MX.dtype != torch.bfloat16 or rows_MX.device.type != "cpu" or rows_MX.shape != shape:
        found = f"{rows_MX.dtype} {list(rows_MX.shape)} on {rows_MX.device}"
        raise ValueError(f"{name}: {found}, where bfloat16 {list(shape)} on the CPU is needed")
    if rows_MX.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: prepacked weights give no gradients")


def with_neighbouring_numbers(rows_MX: Tensor) -> Tensor:
    """The same, laid out so that a row's numbers are neighbours; rows may be any distance apart."""
    return rows_MX if rows_MX.stride(1) == 1 else rows_MX.contiguous()
