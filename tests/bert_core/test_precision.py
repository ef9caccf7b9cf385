from __future__ import annotations

import re

import pytest
import torch

from bert_core.precision import MEASURED_BOUNDS, best_dtype, computes_natively
from tests.live_server import ROOT


@pytest.mark.parametrize("name", ["cpu", "cuda", "mps"])
def test_float32_is_native_everywhere(name: str) -> None:
    assert computes_natively(torch.float32, device=torch.device(name))


def test_what_this_pytorch_cannot_tell_is_not_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not computes_natively(torch.bfloat16, device=torch.device("cpu"))
    assert best_dtype(torch.device("cpu")) == torch.float32


def test_the_readme_publishes_the_bounds() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    published = {
        found[1]: (float(found[2]), float(found[3]))
        for found in re.finditer(r"\| `(float32|float16|bfloat16)` \| ([\d.]+) \| ([\d.]+) \|", readme)
    }
    measured = {
        str(dtype).removeprefix("torch."): (bounds.embedding_cosine, bounds.top1_agreement)
        for dtype, bounds in MEASURED_BOUNDS.items()
    }
    assert published == measured
