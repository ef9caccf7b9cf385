"""Checkpoint folders for tests, written tensor by tensor so that a test can spoil any part of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.model import BertForPreTraining
from bert_core.weight_names import DECODER_BIAS, DECODER_WEIGHT, PREDICTION_BIAS, WORD_EMBEDDINGS, canonical_targets

Tensors = dict[str, Tensor]

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 440449768\n"


def tensors_of(model: BertForPreTraining) -> Tensors:
    """What a file holds of a model, by the names of `transformers`, with both copies of what is tied."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    targets = canonical_targets(model.config, heads=model.heads)
    tensors = {name: target.part(parameters[target.parameter].detach()).clone() for name, target in targets.items()}
    if model.heads.mlm and model.config.tie_word_embeddings:
        tensors[DECODER_WEIGHT] = tensors[WORD_EMBEDDINGS].clone()
        tensors[DECODER_BIAS] = tensors[PREDICTION_BIAS].clone()
    return tensors


def write_config(folder: Path, config: BertConfig, **changes: Any) -> None:
    """Write `config.json`; changes are of the JSON object, and may be anything."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), **changes}), encoding="utf-8")


def write_safetensors(folder: Path, tensors: Tensors, config: BertConfig, **changes: Any) -> Path:
    """A folder with one safetensors file."""
    write_config(folder, config, **changes)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_pickle(folder: Path, content: object, config: BertConfig, *, zipped: bool = True) -> Path:
    """A folder with one pickle."""
    write_config(folder, config)
    torch.save(content, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    return folder


def write_shards(folder: Path, tensors: Tensors, config: BertConfig, *, name: str, count: int = 3) -> dict[str, str]:
    """A folder with shards and their index; `name` is that of the single file. Gives the index's weight map."""
    write_config(folder, config)
    stem, _, suffix = name.rpartition(".")
    listed = {}
    for number in range(count):
        shard = f"{stem}-{number + 1:05}-of-{count:05}.{suffix}"
        part = dict(list(tensors.items())[number::count])
        if suffix == "safetensors":
            save_file(part, folder / shard)
        else:
            torch.save(part, folder / shard)
        listed.update(dict.fromkeys(part, shard))
    write_index(folder, listed, name=name)
    return listed


def write_index(folder: Path, listed: object, *, name: str) -> None:
    """Write the index of shards, whatever is listed."""
    content = {"metadata": {"total_size": 1}, "weight_map": listed}
    (folder / f"{name}.index.json").write_text(json.dumps(content), encoding="utf-8")


def same_parameters(first: BertForPreTraining, second: BertForPreTraining) -> bool:
    """Whether two models have the same parameters, bit for bit, under the same names, dtypes included."""
    ours, others = first.state_dict(), second.state_dict()
    return ours.keys() == others.keys() and all(
        tensor.dtype == others[name].dtype and torch.equal(tensor, others[name]) for name, tensor in ours.items()
    )
