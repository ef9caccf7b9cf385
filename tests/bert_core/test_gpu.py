"""`pytest -m gpu`: the model's kernels on a CUDA device."""

from __future__ import annotations

import pytest
import torch

from tests.bert_core.device_checks import LENGTHS, VARIANTS, checks, packed_tokens, varlen_calls
from tests.tiny import tiny_model

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_output_is_that_of_the_cpu(cuda: torch.device, variant: str, dtype: torch.dtype) -> None:
    missed = [str(check) for check in checks(variant, device=cuda, dtype=dtype) if not check.holds]
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_half_precision_takes_the_kernel_over_offsets(cuda: torch.device, dtype: torch.dtype) -> None:
    """In each of three layers, for all rows and for wanted ones."""
    assert varlen_calls(device=cuda, dtype=dtype) == (0 if dtype == torch.float32 else 6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_pass_does_not_wait_for_the_device(cuda: torch.device, dtype: torch.dtype) -> None:
    model = tiny_model(VARIANTS["base"]).to(cuda, dtype)
    packed = packed_tokens(model.config, device=cuda, lengths=LENGTHS)
    with torch.inference_mode():
        model.bert.encode(packed)
        fresh = packed_tokens(model.config, device=cuda, lengths=LENGTHS)
        torch.cuda.set_sync_debug_mode("error")
        try:
            model.bert.encode(fresh)
        finally:
            torch.cuda.set_sync_debug_mode("default")
