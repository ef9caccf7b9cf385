from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core import load_pretrained, save_pretrained
from bert_core.heads import Heads
from service.checkpoints.report import CheckpointReport, TokenizerReport, inspect_checkpoint
from service.checkpoints.report_text import report_lines
from service.engine.engine import Engine
from tests.bert_core.folders import tensors_of, write_pickle
from tests.live_server import ROOT
from tests.tiny import TINY_CONFIG, tiny_config, tiny_model, write_tiny_vocabulary

SHIPPED = ROOT / "weights" / "minilm-l6-bert-en"


def write(folder: Path, *, heads: Heads | None = None, dtype: torch.dtype = torch.float32) -> Path:
    save_pretrained(tiny_model(heads=heads, dtype=dtype), folder)
    write_tiny_vocabulary(folder)
    return folder


def said(report: CheckpointReport) -> dict[str, str]:
    """The printed lines by their names; problems by their numbers."""
    lines = list(report_lines(report))
    return {line[:12].strip(): line[12:] for line in lines}


def test_a_report_says_what_the_engine_says() -> None:
    report, engine = inspect_checkpoint(SHIPPED), Engine.load(SHIPPED, device="cpu", dtype="float32")
    assert report.problems == ()
    assert report.weights is not None
    assert report.serving is not None
    assert report.weights.parameters == engine.info.parameters
    for name in ("capabilities", "pooling", "max_input_length", "max_embed_length"):
        assert getattr(report.serving, name) == getattr(engine.info, name)
    assert report.tokenizer == TokenizerReport(vocab_size=30522, lowercase=True, mask_token="[MASK]")


def test_the_text_of_a_sound_checkpoint(checkpoint: Path) -> None:
    prompts = {"prompts": {"query": "q: ", "passage": "p: "}, "default_prompt_name": "query"}
    report = inspect_checkpoint(checkpoint)
    (checkpoint / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    try:
        with_prompts = inspect_checkpoint(checkpoint)
    finally:
        (checkpoint / "config_sentence_transformers.json").unlink()
    size = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
    assert report.size_bytes == size
    assert said(report) == {
        "model": "3 layers, 20 wide, 4 attention heads, feed-forward 37, gelu",
        "parameters": f"{load_pretrained(checkpoint).num_parameters():,}, stored in float32",
        "heads": "pooler, mlm, nsp",
        "size": f"{size / 1e6:.1f} MB: 1_Pooling/config.json, config.json, model.safetensors, "
        "sentence_bert_config.json, vocab.txt",
        "tokenizer": "99 pieces, lower-cased, mask token [MASK]",
        "serves": "fill_mask, next_sentence, embed, embed_all, embed_sparse, tokenize",
        "pooling": "cls",
        "limits": "41 tokens, 29 for embeddings",
        "prompts": "none",
        "problems": "none",
    }
    assert said(with_prompts)["prompts"] == "query, passage (default: query)"


@pytest.mark.parametrize(
    ("heads", "heads_said", "serves", "pooling"),
    [
        (
            Heads(nsp=False),
            "pooler, mlm (missing: nsp)",
            "fill_mask, embed, embed_all, embed_sparse, tokenize (answers 501: next_sentence)",
            "pooler",
        ),
        (
            Heads(pooler=False, mlm=False, nsp=False),
            "none (missing: pooler, mlm, nsp)",
            "embed, embed_all, tokenize (answers 501: fill_mask, next_sentence, embed_sparse)",
            "mean",
        ),
    ],
)
def test_missing_heads(tmp_path: Path, heads: Heads, heads_said: str, serves: str, pooling: str) -> None:
    lines = said(inspect_checkpoint(write(tmp_path, heads=heads)))
    assert (lines["heads"], lines["serves"], lines["pooling"]) == (heads_said, serves, pooling)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_the_dtype_is_that_of_the_file_in_either_format(tmp_path: Path, name: str) -> None:
    dtype = getattr(torch, name)
    write(tmp_path / "safetensors", dtype=dtype)
    tensors = tensors_of(tiny_model(dtype=dtype))
    tensors["bert.pooler.dense.bias"] = tensors["bert.pooler.dense.bias"].float()
    write_tiny_vocabulary(write_pickle(tmp_path / "pickle", tensors, TINY_CONFIG))
    for folder, stored in (("safetensors", (name,)), ("pickle", tuple(sorted(["float32", name])))):
        report = inspect_checkpoint(tmp_path / folder)
        assert report.weights is not None
        assert report.weights.stored_dtypes == stored


@pytest.mark.parametrize(("settings", "casing"), [({"do_lower_case": False}, "cased"), ({}, "lower-cased")])
def test_casing(tmp_path: Path, settings: dict[str, Any], casing: str) -> None:
    (write(tmp_path) / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert f" pieces, {casing}, mask" in said(inspect_checkpoint(tmp_path))["tokenizer"]


def test_all_problems_are_told_at_once_and_what_is_sound_all_the_same(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "vocab.txt").write_text("hello\n", encoding="utf-8")
    (folder / "modules.json").write_text("{}", encoding="utf-8")
    config = tiny_config(num_hidden_layers=2).to_dict()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    report = inspect_checkpoint(folder)
    assert (report.weights, report.tokenizer, report.serving) == (None, None, None)
    assert report.config is not None
    assert report.config["num_hidden_layers"] == 2
    problems = "\n".join(report.problems)
    assert "config.json: num_hidden_layers is 2, the weights have 3" in problems
    assert "mask_token is '[MASK]', which is not in the vocabulary" in problems
    assert "modules.json: must be a list" in problems
    lines = list(report_lines(report))
    assert lines[-len(report.problems) - 1 :] == [
        f"problems    {len(report.problems)}",
        *(f"  - {problem}" for problem in report.problems),
    ]


def test_a_broken_tokenizer_hides_no_facts_about_the_weights(tmp_path: Path) -> None:
    (write(tmp_path) / "vocab.txt").unlink()
    report = inspect_checkpoint(tmp_path)
    assert report.problems == ("tokenizer.json and vocab.txt are missing; one of them must be there",)
    assert report.weights is not None
    assert report.serving is None
    assert "tokenizer" not in said(report)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("missing", "no such folder"), ("a" * 5000, "no such folder"), ("file", "is not a folder")],
    ids=["missing", "too long", "file"],
)
def test_what_is_no_folder(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").touch()
    report = inspect_checkpoint(tmp_path / name)
    assert report.problems == (problem,)
    assert (report.files, report.config, report.serving) == ((), None, None)


def test_only_where_files_of_a_checkpoint_can_be_is_looked(tmp_path: Path) -> None:
    """A folder may hold anything: what may not be read, what is deep, and what is no file."""
    (tmp_path / "model.safetensors").mkdir()
    (tmp_path / "1_Pooling" / "deep").mkdir(parents=True)
    for name in ("1_Pooling/config.json", "1_Pooling/deep/config.json", "vocab.txt", "notes.txt"):
        (tmp_path / name).write_text("{}", "utf-8")
    report = inspect_checkpoint(tmp_path)
    assert report.files == ("1_Pooling/config.json", "vocab.txt")
