"""From a text to a checkpoint that is served, by the commands that a user runs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from bert_core.checkpoint import load_pretrained, save_pretrained
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining
from bert_core.pretraining import evaluate, mix
from bert_core.pretraining.__main__ import main
from bert_core.tokenizer import BertTokenizer
from tests.bert_core.pretraining.language import sentence, write_corpus
from tests.bert_core.tokenizer_folders import SHIPPED
from tests.live_server import live_server
from tests.tiny import tiny_config, tiny_model

ROOT = Path(__file__).parents[3]
VARIANT = {
    "position_embedding_type": "sinusoidal",
    "norm_placement": "pre",
    "type_vocab_size": 3,
    "pair_segment_ids": (1, 2),
    "hidden_act": "gelu_new",
    "pooler_type": "all_token_average",
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.1,
}


def written_config(folder: Path, **changes: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(tiny_config(**changes).to_dict()), encoding="utf-8")
    return path


@pytest.mark.timeout(400)
def test_a_variant_learns_a_language_and_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each word follows from the others, and from its article whether a sentence follows."""
    text = write_corpus(tmp_path / "text.txt", documents=600, seed=0)
    held_out = write_corpus(tmp_path / "valid.txt", documents=60, seed=1)
    output = tmp_path / "output"
    command = [
        *(str(text), "--validation", str(held_out), "--output", str(output)),
        *("--config", str(written_config(tmp_path, **VARIANT)), "--vocabulary-size", "200"),
        *("--max-length", "40", "--batch-tokens", "1500", "--learning-rate", "5e-3", "--max-steps", "500"),
        *("--precision", "float32", "--device", "cpu", "--save-every", "0", "--evaluate-every", "200"),
    ]
    assert main(command) == 0
    assert "masked LM accuracy" in capsys.readouterr().out
    tokenizer = BertTokenizer.from_pretrained(output)
    assert [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert evaluate.main([str(output), str(held_out), "--max-length", "40", "--seeds", "5"]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    accuracy, following = float(line[2]), float(line[5])
    # Chance is a sixth, for the full stop, and a half; at best a pair in twelve cannot be told.
    assert accuracy > 0.45
    assert following > 0.8
    _served(output)


def _served(folder: Path) -> None:
    with (
        live_server(folder, "--model-id", str(folder), "--device", "cpu") as server,
        httpx.Client(base_url=server.url) as client,
    ):
        answer = client.post("/fill-mask", json={"inputs": "t1 a3 [MASK] t1 b3 ."}).json()
        assert answer[0]["token_str"].startswith("v")
        same = {"text": sentence(1, 0), "text_pair": sentence(1, 1)}
        other = {"text": sentence(1, 0), "text_pair": sentence(2, 1)}
        follows = [client.post("/next-sentence", json={"inputs": pair}).json()["is_next"] for pair in (same, other)]
        assert follows[0] > 0.5 > follows[1]
        assert len(client.post("/embed", json={"inputs": "t1 a2"}).json()[0]) == 48


def test_ctrl_c_saves_and_resume_goes_on(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text.txt", documents=100, seed=0)
    output = tmp_path / "output"
    command = [
        *(sys.executable, "-m", "bert_core.pretraining", str(text), "--output", str(output)),
        *("--config", str(written_config(tmp_path)), "--vocabulary-size", "200", "--max-length", "40"),
        *("--batch-tokens", "200", "--device", "cpu", "--log-every", "1"),
    ]
    process = subprocess.Popen([*command, "--max-minutes", "5"], cwd=ROOT, stderr=subprocess.PIPE)
    log = output / "log.jsonl"
    end = time.monotonic() + 60
    while not (log.exists() and log.stat().st_size) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said.decode()
    [checkpoint] = output.glob("checkpoint-*")
    steps = int(checkpoint.name.removeprefix("checkpoint-"))
    arguments = command[3:]
    assert main([*arguments, "--max-steps", str(steps + 2)]) == 2  # a run is there already
    assert main([*arguments, "--max-steps", str(steps + 2), "--resume"]) == 0
    entries = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [entry["step"] for entry in entries] == list(range(1, steps + 3))


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        ([], "one of max_steps, epochs and max_minutes is needed"),
        (["--max-steps", "1"], "a new model needs --config"),
        (["--max-steps", "1", "--config", "c", "--vocabulary", "v", "--vocabulary-size", "9"], "one of --vocabulary"),
        (["--max-steps", "1", "--init-from", "f", "--config", "c"], "--config: not with --init-from"),
        (["--max-steps", "1", "--keep-embeddings", "1"], "--keep-embeddings: there are none"),
        (["--max-steps", "1", "--init-from", "f", "--keep-embeddings-of", "g"], "--keep-embeddings-of: say with"),
        (["--max-steps", "1", "--init-from", "/nowhere"], "/nowhere"),
        (["--max-steps", "1", "--config", "/nowhere", "--vocabulary", "v"], "/nowhere: No such file"),
        (["--max-steps", "1", "--config", "c", "--vocabulary-size", "3"], "vocabulary_size: 3 is not allowed"),
        (["--max-steps", "1", "--config", "c", "--vocabulary", "v", "--validation", "/none"], "/none: there is no"),
        (["--max-steps", "1", "--encoding", "utf-16", "--init-from", "weights"], "encoding: utf-16"),
    ],
)
def test_faults_are_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], fault: str
) -> None:
    text = write_corpus(tmp_path / "text.txt", documents=3, seed=0)
    if "--encoding" in flags:
        flags = [*flags[:-1], str(SHIPPED)]
    assert main([str(text), "--output", str(tmp_path / "output"), "--device", "cpu", *flags]) != 0
    said = capsys.readouterr().err
    assert fault in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("written", "fault"), [("{", "Expecting"), ('{"type_vocab_size": 1}', "type_vocab_size: 1")])
def test_a_bad_config_is_told_by_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, fault: str
) -> None:
    text, config = write_corpus(tmp_path / "text.txt", documents=3, seed=0), tmp_path / "shape.json"
    config.write_text(written, "utf-8")
    command = [str(text), "--output", str(tmp_path / "output"), "--config", str(config), "--max-steps", "1"]
    assert main([*command, "--vocabulary-size", "99"]) == 2
    assert f"shape.json: {fault}" in capsys.readouterr().err
    assert not list((tmp_path / "output").iterdir())


def test_a_model_that_is_not_of_a_run_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, output = write_corpus(tmp_path / "text.txt", documents=3, seed=0), tmp_path / "output"
    command = [str(text), "--output", str(output), "--init-from", str(output), "--max-steps", "1"]
    shutil.copytree(SHIPPED, output)
    assert main(command) == 2
    assert "holds a model that is not of a run" in capsys.readouterr().err
    shutil.rmtree(output)
    output.write_text("", "utf-8")
    assert main(command) == 2
    assert "is a file; it must be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 1, "memory ran out; a --batch-tokens below 8192"),
        (torch.OutOfMemoryError("CUDA out of memory"), 1, "memory ran out"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "memory ran out"),
        (OSError(28, "No space left on device"), 1, "output: No space left on device"),
        (KeyboardInterrupt(), 130, "ended at once; --resume goes on from the last checkpoint"),
    ],
)
def test_what_ends_a_run_is_told_in_a_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    said: str,
) -> None:
    def train(*_: object) -> int:
        raise error

    monkeypatch.setattr("bert_core.pretraining.__main__._train", train)
    text, config = write_corpus(tmp_path / "text.txt", documents=3, seed=0), written_config(tmp_path)
    command = [str(text), "--output", str(tmp_path / "output"), "--config", str(config), "--max-steps", "1"]
    assert main([*command, "--vocabulary-size", "99"]) == code
    assert said in capsys.readouterr().err


def test_evaluate_says_what_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_corpus(tmp_path / "text.txt", documents=3, seed=0)
    assert evaluate.main([str(tmp_path), str(text)]) == 1
    assert evaluate.main([str(SHIPPED), str(tmp_path / "missing.txt")]) == 2
    assert evaluate.main([str(SHIPPED), str(text), "--max-length", "2"]) == 2
    assert "no such file" in capsys.readouterr().err
    assert evaluate.main([str(SHIPPED), str(text), "--seeds", "-1"]) == 2
    assert "--seeds: -1 is not allowed; it must be at least 0" in capsys.readouterr().err
    lone = tmp_path / "lone.txt"
    lone.write_text("It rained. We stayed.\n", "utf-8")
    assert evaluate.main([str(SHIPPED), str(lone)]) == 2
    told = capsys.readouterr()
    assert "only one document" in told.err
    assert told.out == ""
    bare = tmp_path / "bare"
    shutil.copytree(SHIPPED, bare)
    config = load_pretrained(SHIPPED).config
    save_pretrained(BertForPreTraining(config, heads=Heads(pooler=False, mlm=False, nsp=False)), bare)
    assert evaluate.main([str(bare), str(text)]) == 2
    assert "neither an mlm nor an nsp head" in capsys.readouterr().err


def test_evaluation_repeats_by_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(SHIPPED, copy)
    text = tmp_path / "text.txt"
    text.write_text("It rained all day. We stayed at home.\n\nThe king left. His men followed him.\n", "utf-8")
    command = [str(copy), str(text), "--seeds", "1", "1", "2"]
    assert evaluate.main(command) == 0
    first, second, third = capsys.readouterr().out.splitlines()[1:]
    assert first == second
    assert first.split()[1:] != third.split()[1:]


def folder_of(path: Path, model: BertForPreTraining) -> Path:
    save_pretrained(model, path)
    shutil.copyfile(SHIPPED / "vocab.txt", path / "vocab.txt")
    return path


def test_a_mix_is_an_encoder_between_two_with_the_heads_of_the_first(tmp_path: Path) -> None:
    config = tiny_config(vocab_size=30522)
    trained, start = tiny_model(config, seed=1), tiny_model(config, seed=2, heads=Heads(pooler=True))
    folders = [folder_of(tmp_path / name, model) for name, model in (("trained", trained), ("start", start))]
    command = [*map(str, folders), "--share", "0.25", "--output", str(tmp_path / "mixed"), "--dtype", "float16"]
    assert mix.main(command) == 0
    mixed = load_pretrained(tmp_path / "mixed")
    assert json.loads((tmp_path / "mixed" / "config.json").read_text())["dtype"] == "float16"
    assert BertTokenizer.from_pretrained(tmp_path / "mixed").pieces("the cat") == [1996, 4937]
    theirs = dict(start.named_parameters())
    for (name, found), (_, ours) in zip(mixed.named_parameters(), trained.named_parameters(), strict=True):
        between = name.startswith("bert.") and "pooler" not in name
        expected = 0.75 * ours + 0.25 * theirs[name] if between else ours
        assert torch.allclose(found, expected, atol=1e-3, rtol=1e-3), name
        assert not between or (found - ours).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("share", "changes", "pieces", "told"),
    [
        ("1.5", {}, 0, "--share: 1.5 is not allowed; it must be from 0 to 1"),
        ("0.5", {"intermediate_size": 8}, 0, "the two differ in 9 weights, such as encoder.layers.0."),
        ("0.5", {}, 1, "its vocabulary is not that of "),
    ],
)
def test_unlike_models_are_not_mixed(
    share: str, changes: dict[str, Any], pieces: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(vocab_size=30522)
    trained = folder_of(tmp_path / "trained", tiny_model(config))
    start = folder_of(tmp_path / "start", tiny_model(replace(config, **changes)))
    if pieces:
        text = (start / "vocab.txt").read_text(encoding="utf-8")
        (start / "vocab.txt").write_text(text.replace("\ncat\n", "\nacat\n"), encoding="utf-8")
    assert mix.main([str(trained), str(start), "--share", share, "--output", str(tmp_path / "mixed")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "mixed").exists()
