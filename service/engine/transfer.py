"""One copy to the device and one back, whatever a pass needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def to_device(arrays: Sequence[npt.NDArray[np.int64]], *, device: torch.device) -> tuple[Tensor, ...]:
    """int64 arrays `[X]` as tensors: views of one row, copied without a wait; on a CPU the arrays' own memory."""
    if device.type == "cpu":
        return tuple(torch.from_numpy(array) for array in arrays)
    sizes = [len(array) for array in arrays]
    # Only from pinned memory does a copy run on its own; PyTorch keeps it until the copy is done.
    pinned = device.type == "cuda"
    row = torch.empty(sum(sizes), dtype=torch.int64, pin_memory=pinned)
    np.concatenate(arrays, out=row.numpy())
    return torch.split(row.to(device, non_blocking=pinned), sizes)


def to_host(tensors: Sequence[Tensor]) -> list[npt.NDArray[Any]]:
    """float32 and int32 tensors of one device as arrays: the one wait of a pass; on a CPU the tensors' own memory."""
    if _on_host(tensors):
        return [tensor.numpy() for tensor in tensors]
    row = torch.cat([tensor.flatten().view(torch.int32) for tensor in tensors]).cpu()
    parts = row.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.dtype).view(tensor.shape).numpy() for part, tensor in zip(parts, tensors, strict=True)]


def _on_host(tensors: Sequence[Tensor]) -> bool:
    return all(tensor.device.type == "cpu" for tensor in tensors)
