"""The checks that run on a GPU, run on the CPU: they must be right before they are needed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.service.engine.device_checks import TASKS, checks, shipped_checks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_check_holds_on_the_cpu(dtype: torch.dtype, tmp_path: Path) -> None:
    found = checks(tmp_path, device=torch.device("cpu"), dtype=dtype)
    assert len(found) == 2 * len(TASKS)
    assert not [str(check) for check in found if not check.holds]


def test_the_shipped_checkpoint_agrees_with_itself() -> None:
    cosine, agreement = shipped_checks(device="cpu", dtype=torch.float32, texts=5)
    assert cosine.gap == pytest.approx(0, abs=1e-6)
    assert agreement.gap == 0
