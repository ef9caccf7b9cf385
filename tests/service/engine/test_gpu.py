"""`pytest -m gpu`: the engine on a CUDA device."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from service.engine.engine import Engine
from service.settings import default_model_id
from service.tasks import Task
from tests.service.engine.device_checks import TASKS, checks, shipped_checks

pytestmark = pytest.mark.gpu

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_task_is_answered_as_on_the_cpu(cuda: torch.device, dtype: torch.dtype, tmp_path: Path) -> None:
    missed = [str(check) for check in checks(tmp_path, device=cuda, dtype=dtype) if not check.holds]
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_shipped_checkpoint_keeps_its_bounds(cuda: torch.device, dtype: torch.dtype) -> None:
    missed = [str(check) for check in shipped_checks(device=str(cuda), dtype=dtype, texts=64) if not check.holds]
    assert not missed, "\n".join(missed)


def test_auto_takes_the_gpu_in_half_precision(cuda: torch.device) -> None:
    engine = Engine.load(default_model_id())
    assert engine.info.device == str(cuda)
    assert engine.info.dtype in ("bfloat16", "float16")


def test_a_batch_waits_for_the_device_once_at_most(cuda: torch.device) -> None:
    engine = Engine.load(default_model_id(), device=str(cuda))
    tasks: list[Task] = list(TASKS.values())
    encoded = [engine.encode(task) for task in tasks]
    engine.run(encoded)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine.run(encoded)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [f"{one.filename}:{one.lineno}" for one in caught if "synchronizing CUDA" in str(one.message)]
    assert len(waits) <= 1, waits
