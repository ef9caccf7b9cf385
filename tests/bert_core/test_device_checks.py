"""The checks that run on a GPU, run on the CPU: they must be right before they are needed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from bert_core.attention import SelfAttention
from bert_core.attention_options import AttentionOptions
from tests.bert_core.device_checks import VARIANTS, checks, varlen_calls
from tests.bert_core.test_attention import plain_varlen_attention

CPU = torch.device("cpu")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_check_holds_on_the_cpu(variant: str, dtype: torch.dtype) -> None:
    found = checks(variant, device=CPU, dtype=dtype)
    assert len(found) > 15
    assert not [str(check) for check in found if not check.holds]
    assert (dtype == torch.float32) == all(check.gap == 0 for check in found)


def in_half_precision(_: SelfAttention, q_RHK: Tensor, *, options: AttentionOptions) -> bool:
    """The model that is checked, and not the one that is right."""
    return q_RHK.dtype == torch.bfloat16 and not options.explicit


def test_the_kernel_over_offsets_is_checked_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a plain kernel in its place."""
    assert varlen_calls(device=CPU, dtype=torch.bfloat16) == 0
    monkeypatch.setattr(varlen, "varlen_attn", plain_varlen_attention)
    monkeypatch.setattr(SelfAttention, "_takes_varlen", in_half_precision)
    assert varlen_calls(device=CPU, dtype=torch.bfloat16) == 6
    assert not [check for check in checks("base", device=CPU, dtype=torch.bfloat16) if not check.holds]


def test_a_wrong_kernel_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: Any) -> Tensor:
        return plain_varlen_attention(*arguments) * 1.5

    monkeypatch.setattr(varlen, "varlen_attn", wrong)
    monkeypatch.setattr(SelfAttention, "_takes_varlen", in_half_precision)
    missed = [check.name for check in checks("base", device=CPU, dtype=torch.bfloat16) if not check.holds]
    assert {"base, bfloat16: all rows", "base, bfloat16: wanted rows", "base, bfloat16: padded, mask holes"} <= {
        *missed
    }
    assert "base, bfloat16: head mask" not in missed
