"""Vocabularies are learned with their special tokens first, and what belongs to a checkpoint goes on with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.checkpoint import CheckpointError, save_pretrained
from bert_core.heads import Heads
from bert_core.pretraining.starting_model import (
    StartingModel,
    check_config,
    copy_companions,
    from_checkpoint,
    from_config,
    train_vocabulary,
    with_teacher,
)
from bert_core.tokenizer import BertTokenizer
from tests.tiny import SPECIAL_TOKENS, tiny_config, tiny_model, write_tiny_vocabulary

CPU = torch.device("cpu")
TEXTS = ["The cat sat on the mat."] * 5 + ["A dog sat there, too."] * 5 + ["北京是首都。"] * 3


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_learned_vocabulary(tmp_path: Path, lowercase: bool) -> None:
    train_vocabulary(TEXTS, tmp_path, size=60, lowercase=lowercase)
    pieces = (tmp_path / "vocab.txt").read_text("utf-8").splitlines()
    assert pieces[:5] == list(SPECIAL_TOKENS)
    assert len(pieces) == len(set(pieces)) <= 60
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.lowercase == lowercase
    assert (tokenizer.token_to_id("The") is None) == lowercase
    assert tokenizer.unk_id not in tokenizer.pieces("The cat sat there. 北京")
    assert tokenizer.token_to_id("北") is not None


def test_a_new_model_is_that_of_the_vocabulary_and_the_seed(tmp_path: Path) -> None:
    write_tiny_vocabulary(tmp_path)
    first, again, other = (
        from_config(tiny_config(vocab_size=7), tmp_path, device=CPU, seed=seed).model.state_dict() for seed in (1, 1, 2)
    )
    assert first["bert.embeddings.token.weight"].shape[0] == 99
    assert all(values.equal(again[name]) for name, values in first.items())
    assert not first["mlm.dense.weight"].equal(other["mlm.dense.weight"])


def test_a_vocabulary_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    save_pretrained(tiny_model(tiny_config(vocab_size=98)), tmp_path)
    write_tiny_vocabulary(tmp_path)
    with pytest.raises(CheckpointError, match="has ids up to 98, but vocab_size in config.json is 98"):
        from_checkpoint(tmp_path, device=CPU, seed=0)


@pytest.mark.parametrize("heads", [Heads(), Heads(mlm=False, nsp=False)])
def test_dropout_takes_the_place_of_the_configs(tmp_path: Path, heads: Heads) -> None:
    write_tiny_vocabulary(tmp_path)
    config = tiny_config(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2)
    save_pretrained(tiny_model(config, heads=heads), tmp_path)
    kept = from_checkpoint(tmp_path, device=CPU, seed=0).model
    assert (kept.config.hidden_dropout_prob, kept.config.attention_probs_dropout_prob) == (0.1, 0.2)
    other = from_checkpoint(tmp_path, device=CPU, seed=0, dropout=0.0).model
    new = from_config(kept.config, tmp_path, device=CPU, seed=0, dropout=0.3).model
    assert (other.config.hidden_dropout_prob, other.config.attention_probs_dropout_prob) == (0.0, 0.0)
    assert (new.config.hidden_dropout_prob, new.config.attention_probs_dropout_prob) == (0.3, 0.3)
    assert other.state_dict().keys() == kept.state_dict().keys()
    assert all(values.equal(other.state_dict()[name]) for name, values in kept.state_dict().items())
    ids = torch.arange(5, 12)[None]
    for model, repeats in ((other, True), (kept, False)):
        model.train()
        once, again = (model.bert(ids).last_hidden_state for _ in range(2))
        assert once.equal(again) == repeats


def test_a_teacher_is_another_encoder(tmp_path: Path) -> None:
    start, _ = two_checkpoints(tmp_path, {})
    assert start.teacher is None
    small = tiny_model(tiny_config(num_hidden_layers=1))
    save_pretrained(small, tmp_path / "teacher")
    teacher = with_teacher(start, tmp_path / "teacher", max_length=40).teacher
    assert teacher is not None
    assert len(teacher.encoder.layers) == 1
    assert teacher.embeddings.token.weight.equal(small.bert.embeddings.token.weight)


@pytest.mark.parametrize(
    ("changes", "pieces", "fault"),
    [
        ({}, "last two", "its vocabulary is not that of the model that is trained; it must be the same"),
        ({}, "cased", "lower-casing: False is not allowed; it must be True"),
        ({"hidden_size": 64}, "", "hidden_size: 64 is not allowed; it must be 20, as of the model that is trained"),
        ({"pair_segment_ids": (1, 0)}, "", "pair_segment_ids: (1, 0) is not allowed; it must be (0, 1)"),
        ({"max_position_embeddings": 39}, "", "max_length: 40 is not allowed; it must be at most"),
    ],
)
def test_a_teacher_that_reads_otherwise_is_refused(
    tmp_path: Path, changes: dict[str, Any], pieces: str, fault: str
) -> None:
    start, folder = two_checkpoints(tmp_path, changes)
    if pieces == "last two":
        *others, first, second = (folder / "vocab.txt").read_text("utf-8").splitlines()
        (folder / "vocab.txt").write_text("\n".join([*others, second, first]), "utf-8")
    elif pieces == "cased":
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}', "utf-8")
    with pytest.raises(ValueError, match=re.escape(fault)) as raised:
        with_teacher(start, folder, max_length=40)
    assert [line.startswith(f"{folder}: ") for line in str(raised.value).splitlines()] == [True]


def two_checkpoints(folder: Path, changes: dict[str, Any]) -> tuple[StartingModel, Path]:
    """A model to train, and the folder of another one with some fields changed."""
    for name, config in (("own", tiny_config()), ("teacher", tiny_config(**changes))):
        (folder / name).mkdir()
        save_pretrained(tiny_model(config), folder / name)
        write_tiny_vocabulary(folder / name)
    return from_checkpoint(folder / "own", device=CPU, seed=0), folder / "teacher"


def test_what_says_how_vectors_are_made_is_copied_and_weights_are_not(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("vocab.txt", "modules.json", "1_Pooling/config.json", "model.safetensors", "config.json", "README.md"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name, "utf-8")
    target.mkdir()
    copy_companions(source, target)
    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert copied == ["1_Pooling/config.json", "modules.json", "vocab.txt"]
    copy_companions(target, target)  # of a run whose vocabulary is in its own output
    assert (target / "vocab.txt").read_text("utf-8") == "vocab.txt"


@pytest.mark.parametrize("size", [-1, 6, 1_000_001, 10**30])
def test_a_vocabulary_of_no_use_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(ValueError, match=f"vocabulary_size: {size} is not allowed; it must be from 7 to 1,000,000"):
        train_vocabulary(TEXTS, tmp_path / "new", size=size, lowercase=True)
    assert not (tmp_path / "new").exists()


def test_a_vocabulary_smaller_than_its_alphabet_has_the_commonest_characters(tmp_path: Path) -> None:
    train_vocabulary(["aab aab aac", "aaa"], tmp_path, size=8, lowercase=True)
    pieces = (tmp_path / "vocab.txt").read_text("utf-8").splitlines()
    assert len(pieces) <= 8
    assert set(pieces[5:]) >= {"a", "##a"}


def test_a_model_that_cannot_take_such_pairs_is_refused_by_field() -> None:
    config = tiny_config(max_position_embeddings=17, type_vocab_size=1)
    with pytest.raises(ValueError, match="type_vocab_size: 1 is not allowed.*\nmax_length: 18 .* at most .* 17"):
        check_config(config, max_length=18)
    check_config(tiny_config(max_position_embeddings=18), max_length=18)
