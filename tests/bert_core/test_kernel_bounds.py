"""Kernels touch no memory beside what they are given: it lies next to a page that nobody may touch.

A kernel that fails here takes the whole test run with it.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from bert_core.tiles import tiles
from tests.bert_core.test_tiles import needs_tiles

pytestmark = needs_tiles

COUNTS = (1, 2, 15, 16, 17, 31, 32, 33, 49)
PROTECTED = 0  # PROT_NONE of mprotect(2)

Guard: TypeAlias = Callable[[Tensor], Tensor]


@pytest.fixture(params=["before", "behind"])
def guard(request: pytest.FixtureRequest) -> Guard:
    """Copies a tensor to memory that begins or ends with such a page."""
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    behind = request.param == "behind"

    def guarded(tensor: Tensor) -> Tensor:
        pages = -(-tensor.nbytes // mmap.PAGESIZE)
        memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        page = address + pages * mmap.PAGESIZE if behind else address
        assert protect(ctypes.c_void_p(page), mmap.PAGESIZE, PROTECTED) == 0
        begin = pages * mmap.PAGESIZE - tensor.nbytes if behind else mmap.PAGESIZE
        count = tensor.numel()
        copy = torch.frombuffer(memory, dtype=tensor.dtype, count=count, offset=begin).view(tensor.shape)
        return copy.copy_(tensor)

    return guarded


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("ending", ["float32", "rounded", "activated", "added"])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_products(guard: Guard, count: int, ending: str, threads: int) -> None:
    kernels, inputs, outputs = tiles(), 96, 64
    assert kernels is not None
    results = torch.float32 if ending == "float32" else torch.bfloat16
    rows, weights, bias = random(count, inputs), random(outputs, inputs), random(outputs, dtype=torch.float32)
    addend = random(count, outputs) if ending == "added" else None
    terms = torch.tensor([2.0, 0.1, 0.0]) if ending == "activated" else None
    given = [guard(one) if one is not None else None for one in (rows, weights, bias, addend, terms)]
    got = guard(torch.full((count, outputs), torch.nan, dtype=results))
    kernels.library.tile_product(
        *(None if one is None else one.data_ptr() for one in given),
        got.data_ptr(),
        count,
        inputs,
        outputs,
        inputs,
        outputs,
        outputs,
        ending == "float32",
        kernels.team,
        threads,
    )
    assert bool(got.isfinite().all()), "rows were left out"


@pytest.mark.parametrize("count", [*COUNTS, 64, 65])
@pytest.mark.parametrize("threads", [1, 2])
def test_norms(guard: Guard, count: int, threads: int) -> None:
    kernels, width = tiles(), 96
    assert kernels is not None
    given = [guard(random(count, width)), *(guard(random(width, dtype=torch.float32)) for _ in range(2))]
    got = guard(torch.full((count, width), torch.nan, dtype=torch.bfloat16))
    addresses = [one.data_ptr() for one in (*given, got)]
    kernels.library.layer_norm(*addresses, count, width, width, 1e-12, kernels.team, threads)
    assert bool(got.isfinite().all()), "rows were left out"


@pytest.mark.parametrize("count", [*COUNTS, 130])
@pytest.mark.parametrize("width", [32, 96])
@pytest.mark.parametrize("threads", [1, 2])
def test_attention(guard: Guard, count: int, width: int, threads: int) -> None:
    kernels, heads = tiles(), 2
    assert kernels is not None
    stride = heads * width
    given = [guard(random(count + 5, stride)) for _ in range(3)]
    got = guard(torch.full((count + 5, stride), torch.nan, dtype=torch.bfloat16))
    offsets = guard(torch.tensor([0, 5, count + 5], dtype=torch.int32))
    kernels.library.tile_attention(
        *(one.data_ptr() for one in (*given, got)),
        *(stride, stride, stride),
        *(offsets.data_ptr(), offsets.data_ptr()),
        *(2, heads, width),
        kernels.team,
        threads,
    )
    assert bool(got.isfinite().all()), "rows were left out"
