from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.checkpoint_contents import inspect_folder
from bert_core.config import BertConfig
from tests.bert_core.folders import (
    LFS_POINTER,
    Tensors,
    tensors_of,
    write_config,
    write_index,
    write_pickle,
    write_safetensors,
    write_shards,
)
from tests.tiny import TINY_CONFIG, tiny_config, tiny_model

UP = "bert.encoder.layer.1.intermediate.dense.weight"
QUERY = "bert.encoder.layer.1.attention.self.query.weight"


@pytest.fixture
def tensors() -> Tensors:
    return tensors_of(tiny_model())


def problems_of(folder: Path) -> list[str]:
    contents, problems = inspect_folder(folder)
    assert (contents is None) == bool(problems)
    return problems


def problems_with(folder: Path, tensors: Tensors, config: BertConfig = TINY_CONFIG, **changes: Any) -> list[str]:
    return problems_of(write_safetensors(folder, tensors, config, **changes))


def test_a_good_folder(tmp_path: Path, tensors: Tensors) -> None:
    assert problems_with(tmp_path, tensors) == []


def test_no_folder(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "nowhere") == ["no such folder"]
    (tmp_path / "file").touch()
    assert problems_of(tmp_path / "file") == ["is not a folder"]


def test_everything_is_told_at_once(tmp_path: Path, tensors: Tensors) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(f"piece{number}" for number in range(120)))
    (tmp_path / "tokenizer.json").write_bytes(LFS_POINTER)
    del tensors[QUERY]
    tensors[UP] = torch.ones(20, 37)
    tensors["bert.betamax.gamma_ray"] = torch.ones(1)
    tensors["cls.predictions.decoder.weight"] += 1
    tensors["bert.pooler.dense.bias"] = torch.ones(20, dtype=torch.int64)
    found = problems_with(tmp_path, tensors)
    assert found == [
        f"missing tensors: {QUERY}",
        "unexpected tensors, as of a head for another task, more layers, or another architecture: "
        "bert.betamax.gamma_ray",
        "tensors that are not floating-point numbers of 16, 32 or 64 bits: bert.pooler.dense.bias is I64",
        f"tensors of the wrong shape: {UP} is [20, 37], by config.json it must be [37, 20]",
        "bert.embeddings.word_embeddings.weight and cls.predictions.decoder.weight differ, but tie_word_embeddings in "
        "config.json makes them one; set it to false if they are two",
        "tokenizer.json: is a Git LFS pointer, not the file that it stands for; run `git lfs pull`",
        "vocab.txt: has ids up to 119, but vocab_size in config.json is 99",
    ]


def test_bad_config_and_bad_weights_are_told_at_once(tmp_path: Path) -> None:
    write_config(tmp_path, TINY_CONFIG, model_type="roberta", hidden_act="swooglu", layer_norm_epsilon=1e-5)
    (tmp_path / "model.safetensors").write_bytes(LFS_POINTER)
    found = problems_of(tmp_path)
    assert [problem.split(":")[0] for problem in found] == ["config.json"] * 3 + ["model.safetensors"]
    for field in ("model_type", "hidden_act", "layer_norm_epsilon"):
        assert any(problem.startswith(f"config.json: {field}: ") for problem in found)


@pytest.mark.parametrize("content", [b"", LFS_POINTER, b"[]", b"{", b"\xff{}", b"[" * 100_000])
def test_a_config_that_is_none(tmp_path: Path, tensors: Tensors, content: bytes) -> None:
    write_safetensors(tmp_path, tensors, TINY_CONFIG)
    (tmp_path / "config.json").write_bytes(content)
    (problem,) = problems_of(tmp_path)
    assert problem.startswith("config.json: ")


def test_an_empty_folder(tmp_path: Path) -> None:
    config, weights = problems_of(tmp_path)
    assert config == "config.json: is missing"
    assert weights.startswith("no weights: ")


def test_weights_of_another_architecture(tmp_path: Path) -> None:
    found = problems_with(tmp_path, {f"transformer.h.0.{number}": torch.ones(1) for number in range(12)})
    assert found[0] == "config.json: num_hidden_layers is 3, the weights have 0"
    assert found[1].startswith("no tensor is named as in a BERT encoder")
    assert found[2].startswith("missing tensors: bert.embeddings.word_embeddings.weight, bert.embeddings.position_emb")
    assert found[3].endswith("transformer.h.0.0, transformer.h.0.1, transformer.h.0.10, transformer.h.0.11, "
                             "transformer.h.0.2, transformer.h.0.3, transformer.h.0.4, transformer.h.0.5, "
                             "transformer.h.0.6, transformer.h.0.7 and 2 more")  # fmt: skip


@pytest.mark.parametrize("missing", ["bert.embeddings.LayerNorm.bias", "bert.encoder.layer.2.output.dense.weight"])
def test_one_missing_tensor(tmp_path: Path, tensors: Tensors, missing: str) -> None:
    del tensors[missing]
    assert problems_with(tmp_path, tensors) == [f"missing tensors: {missing}"]


@pytest.mark.parametrize(
    "name", ["classifier.weight", "bert.encoder.layer.0.intermediate.dense_act.weight", "a\x1b[2Jb"]
)
def test_one_unexpected_tensor(tmp_path: Path, tensors: Tensors, name: str) -> None:
    (problem,) = problems_with(tmp_path, {**tensors, name: torch.ones(1)})
    assert problem.startswith("unexpected tensors")
    assert problem.endswith(f": {name}" if name.isprintable() else r": 'a\x1b[2Jb'")


def test_unexpected_tensors_are_told_under_the_name_in_the_file(tmp_path: Path, tensors: Tensors) -> None:
    wrapped = {f"module.{name}": tensor for name, tensor in tensors.items()}
    (problem,) = problems_with(tmp_path, {**wrapped, "module.bert.more.LayerNorm.gamma": torch.ones(1)})
    assert problem.endswith(": module.bert.more.LayerNorm.gamma")


@pytest.mark.parametrize("layers", [2, 4, 10**9])
def test_another_number_of_layers(tmp_path: Path, tensors: Tensors, layers: int) -> None:
    found = problems_with(tmp_path, tensors, num_hidden_layers=layers)
    assert found[0] == f"config.json: num_hidden_layers is {layers}, the weights have 3"
    name = "bert.encoder.layer.2." if layers < 3 else "bert.encoder.layer.3."
    assert ("unexpected" if layers < 3 else "missing") in found[1]
    assert name in found[1]
    assert found[1].endswith(" and 6 more")


@pytest.mark.parametrize(
    ("changes", "name", "stored", "wanted", "settings"),
    [
        ({"vocab_size": 120}, "word_embeddings", [99, 20], [120, 20], "vocab_size, hidden_size"),
        (
            {"max_position_embeddings": 64},
            "position_embeddings",
            [41, 20],
            [64, 20],
            "max_position_embeddings, hidden_size",
        ),
        (
            {"type_vocab_size": 2**31 - 1},
            "token_type_embeddings",
            [7, 20],
            [2**31 - 1, 20],
            "type_vocab_size, hidden_size",
        ),
    ],
)
def test_sizes_that_the_config_has_otherwise(
    tmp_path: Path,
    tensors: Tensors,
    changes: dict[str, int],
    name: str,
    stored: list[int],
    wanted: list[int],
    settings: str,
) -> None:
    fault = f"bert.embeddings.{name}.weight is {stored}, by config.json it must be {wanted} ({settings})"
    assert problems_of(write_safetensors(tmp_path, tensors, TINY_CONFIG, **changes)) == [
        f"tensors of the wrong shape: {fault}"
    ]


def test_absurd_sizes_are_refused_without_building_the_model(tmp_path: Path, tensors: Tensors) -> None:
    (problem,) = problems_with(
        tmp_path, tensors, hidden_size=2**31 - 1, num_attention_heads=2**31 - 1, intermediate_size=2**31 - 1
    )
    for setting in ("vocab_size", "max_position_embeddings", "type_vocab_size", "intermediate_size"):
        assert f"({setting}, hidden_size)" in problem


def test_shapes_of_pruned_layers(tmp_path: Path) -> None:
    model = tiny_model(tiny_config(pruned_heads={1: (0, 2)}))
    tensors = tensors_of(model)
    assert tensors[QUERY].shape == (10, 20)
    assert problems_with(tmp_path, tensors, model.config) == []
    (problem,) = problems_with(tmp_path, tensors, pruned_heads={})
    assert f"{QUERY} is [10, 20], by config.json it must be [20, 20]" in problem


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.complex64])
@pytest.mark.parametrize("write", [write_safetensors, write_pickle])
def test_dtypes_that_weights_cannot_have(tmp_path: Path, tensors: Tensors, dtype: torch.dtype, write: Any) -> None:
    tensors[UP] = tensors[UP].to(dtype)
    (problem,) = problems_of(write(tmp_path, tensors, TINY_CONFIG))
    assert problem.startswith(f"tensors that are not floating-point numbers of 16, 32 or 64 bits: {UP} is ")


def test_two_spellings_of_one_tensor(tmp_path: Path, tensors: Tensors) -> None:
    tensors["bert.embeddings.LayerNorm.gamma"] = tensors["bert.embeddings.LayerNorm.weight"].clone()
    (problem,) = problems_with(tmp_path, tensors)
    assert problem.startswith("one tensor under two names: ")


def test_bare_and_prefixed_names(tmp_path: Path, tensors: Tensors) -> None:
    mixed = {n.removeprefix("bert.") if ".layer." in n else n: tensor for n, tensor in tensors.items()}
    (problem,) = problems_with(tmp_path, mixed)
    assert problem.startswith("two kinds of names")


class TestShards:
    def test_a_tensor_that_its_shard_does_not_hold(self, tmp_path: Path, tensors: Tensors) -> None:
        listed = write_shards(tmp_path, tensors, TINY_CONFIG, name="model.safetensors")
        write_index(tmp_path, {**listed, "bert.more": listed[UP]}, name="model.safetensors")
        (problem,) = problems_of(tmp_path)
        assert problem == "tensors that are not in the shard in which the index lists them: bert.more"

    def test_a_tensor_that_the_index_does_not_list(self, tmp_path: Path, tensors: Tensors) -> None:
        listed = write_shards(tmp_path, tensors, TINY_CONFIG, name="pytorch_model.bin")
        del listed[UP]
        write_index(tmp_path, listed, name="pytorch_model.bin")
        assert problems_of(tmp_path) == [f"tensors in a shard in which the index does not list them: {UP}"]

    def test_a_tensor_in_two_shards(self, tmp_path: Path, tensors: Tensors) -> None:
        listed = write_shards(tmp_path, tensors, TINY_CONFIG, name="pytorch_model.bin")
        other = next(file for file in listed.values() if file != listed[UP])
        more = torch.load(tmp_path / other, weights_only=True)
        torch.save({**more, UP: tensors[UP] + 1}, tmp_path / other)
        assert problems_of(tmp_path) == [f"tensors in a shard in which the index does not list them: {UP}"]

    def test_every_broken_shard_is_told(self, tmp_path: Path, tensors: Tensors) -> None:
        first, second, third = sorted(
            set(write_shards(tmp_path, tensors, TINY_CONFIG, name="model.safetensors").values())
        )
        (tmp_path / first).unlink()
        (tmp_path / second).write_bytes((tmp_path / second).read_bytes()[:-100])
        (tmp_path / third).write_bytes(LFS_POINTER)
        assert sorted(problem.split(": ")[0] for problem in problems_of(tmp_path)) == [first, second, third]


def test_a_vocabulary_that_is_shorter_than_the_matrix_is_fine(tmp_path: Path, tensors: Tensors) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[MASK]": 98}))
    assert problems_with(tmp_path, tensors) == []
