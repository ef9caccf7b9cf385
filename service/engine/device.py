"""Where and in which precision a model runs, and how many CPU threads may work on it."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path

import torch

from bert_core.precision import best_dtype, computes_natively

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

CGROUP_V2_QUOTA = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
CGROUP_V1_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


class DeviceError(ValueError):
    """A device or dtype was asked for that cannot be had here."""


def choose_device(name: str, *, worker: int = 0) -> torch.device:
    """The device for a setting; only `auto` falls back: CUDA, then Apple's mps, then the CPU.

    Args:
        name: as in the setting.
        worker: number of this process among the service's, which share out the GPUs that the setting does not tell
            apart.

    Raises:
        DeviceError: the device cannot be had.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        logger.info("device auto: %s", name)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceError(f"device: {name!r} is not auto, cpu, cuda, cuda:N or mps") from None
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise DeviceError(
                f"device: {name} cannot be had, this process sees {count} CUDA devices; "
                "check the NVIDIA driver, that the container was given the GPU, and that this torch is a CUDA build"
            )
        return torch.device("cuda", worker % count if device.index is None else device.index)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("device: mps cannot be had, this is no Apple GPU or a torch without it")
    if device.type not in ("cpu", "mps"):
        raise DeviceError(f"device: {name!r} is not auto, cpu, cuda, cuda:N or mps")
    return device


def choose_dtype(name: str, *, device: torch.device) -> torch.dtype:
    """The dtype for a setting; `auto` is the best that the device computes natively.

    Raises:
        DeviceError: no such dtype, or bfloat16 where the device would have to emulate it.
    """
    if name == "auto":
        dtype = best_dtype(device)
        logger.info("dtype auto: %s on %s", str(dtype).removeprefix("torch."), device)
        return dtype
    if name not in DTYPES:
        raise DeviceError(f"dtype: {name!r} is not auto, {', '.join(DTYPES)}")
    if name == "bfloat16" and not computes_natively(torch.bfloat16, device=device):
        raise DeviceError(f"dtype: bfloat16 would be emulated on {device}; use auto or float32")
    return DTYPES[name]


def available_cpus() -> int:
    """Whole CPUs that this process may use: the lesser of its affinity and its container's quota, at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def _cgroup_quota() -> float | None:
    """CPUs that the container's quota allows; None without one."""
    try:
        quota, period = CGROUP_V2_QUOTA.read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = CGROUP_V1_QUOTA.read_text().strip(), CGROUP_V1_PERIOD.read_text().strip()
        except OSError:
            return None
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)
