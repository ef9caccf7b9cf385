"""The GPU benchmark, rehearsed on the CPU in tiny sizes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bert_core.config import BertConfig
from tests.benchmarks import gpu
from tests.benchmarks.gpu_measure import Plan
from tests.benchmarks.gpu_timing import Stopwatch
from tests.device_checks import Check

PLAN = Plan(
    config=BertConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=56),
    device=torch.device("cpu"),
    dtype=torch.float32,
    product_size=33,
    lengths=(7, 13),
    batches=(1, 3),
    latency_lengths=(5,),
    mix="7/13",
    mix_texts=70,
    rounds=2,
    seconds=0.0,
)


def test_it_checks_measures_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "DTYPES", (torch.float32,))
    assert gpu.run(PLAN, folder=tmp_path / "new", texts=2) == 0
    shown = capsys.readouterr().out
    [page] = (tmp_path / "new").glob("*-gpu.md")
    found = json.loads(page.with_suffix(".json").read_text())
    assert page.read_text() in shown
    assert [(batch["length"], batch["batch"], batch["tokens"]) for batch in found["batches"]] == [
        (7, 1, 7),
        (7, 3, 21),
        (13, 1, 13),
        (13, 3, 39),
    ]
    assert found["batches"][0]["sequences_per_second"].keys() == {
        "encoder",
        "encoder, [CLS] alone",
        "engine",
        "transformers",
    }
    # Two layers of 2 (4 D² + 2 D F) a token and 4 D L² of attention a layer.
    rate, operations = (
        found["batches"][3][name]["engine"] for name in ("sequences_per_second", "operations_per_second")
    )
    assert operations / rate == pytest.approx(2 * (2 * (4 * 48**2 + 2 * 48 * 56) * 13 + 4 * 48 * 13**2))
    assert len(found["checks"]) > 400
    assert "| 13 | 3 | " in shown


def test_a_miss_ends_it_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = Check(name="a kernel", gap=0.5, bound=0.2)
    monkeypatch.setattr(gpu, "checks", lambda *_, **__: iter([missed]))
    assert gpu.run(PLAN, folder=tmp_path, texts=2) == 1
    assert str(missed) in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_works_take_turns() -> None:
    calls: list[str] = []
    watch = Stopwatch(device=torch.device("cpu"), rounds=3, seconds=0.0)
    found = watch.per_call({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")})
    assert "".join(calls) == "aaabbb" + "ababab"
    assert found.keys() == {"a", "b"}
    assert all(seconds > 0 for seconds in found.values())
