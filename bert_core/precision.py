"""Which dtype a device computes natively, and how far each may stray from float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How close a dtype stays to float32 on English text, as measured on the shipped checkpoint and kept by a test.

    embedding_cosine: least cosine between a text's mean-pooled vector and the one of float32.
    top1_agreement: least share of masks whose first guess is that of float32.
    """

    embedding_cosine: float
    top1_agreement: float


MEASURED_BOUNDS: Mapping[torch.dtype, Bounds] = MappingProxyType(
    {
        torch.float32: Bounds(embedding_cosine=0.999999, top1_agreement=1.0),
        torch.float16: Bounds(embedding_cosine=0.99999, top1_agreement=0.995),
        torch.bfloat16: Bounds(embedding_cosine=0.9995, top1_agreement=0.99),
    }
)


def computes_natively(dtype: torch.dtype, *, device: torch.device) -> bool:
    """Whether the device has instructions for products of this dtype, rather than emulating them.

    float16 counts on every GPU; on a CPU neither half precision does without instructions of its own.
    """
    if dtype == torch.float32:
        return True
    if device.type == "cuda":
        return dtype == torch.float16 or torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        names = {torch.bfloat16: ("avx512_bf16", "amx_bf16"), torch.float16: ("avx512_fp16",)}[dtype]
        return any(_cpu_capabilities().get(name, False) for name in names)
    return dtype == torch.float16


def best_dtype(device: torch.device) -> torch.dtype:
    """The fastest that the device computes natively: bfloat16, else on a GPU float16, else float32; never emulated."""
    if device.type in ("cuda", "cpu") and computes_natively(torch.bfloat16, device=device):
        return torch.bfloat16
    return torch.float16 if device.type == "cuda" else torch.float32


def _cpu_capabilities() -> Mapping[str, object]:
    """Instruction sets by name; nothing where this PyTorch cannot tell."""
    tell = getattr(torch.cpu, "get_capabilities", None)
    return {} if tell is None else tell()
