from __future__ import annotations

import json
from pathlib import Path

import pytest

from bert_core import CheckpointError, load_pretrained
from service.checkpoints.fetching import fetch_checkpoint, needed_files
from tests.bert_core.folders import same_parameters, tensors_of, write_pickle, write_safetensors, write_shards
from tests.fake_hub import FakeHub, files_of
from tests.service.checkpoints.conftest import REPOSITORY
from tests.tiny import TINY_CONFIG, tiny_model, write_tiny_vocabulary

pytestmark = pytest.mark.usefixtures("cache")

COPIES = (
    "onnx/model.onnx",
    "onnx/config.json",
    "openvino/openvino_model.bin",
    "tf_model.h5",
    "flax_model.msgpack",
    "rust_model.ot",
    "model.fp16.safetensors",
    "optimizer.bin",
    "README.md",
    "training/1_Pooling.txt",
)


def fetch(hub: FakeHub, files: dict[str, bytes]) -> Path:
    """Fetch a repository with these files, and copies for other frameworks."""
    hub.files = files | dict.fromkeys(COPIES, b"copy")
    return fetch_checkpoint(REPOSITORY, revision=None, offline=False).folder


@pytest.mark.parametrize("kind", ["safetensors", "safetensors in shards", "pickle", "pickle in shards", "both"])
def test_only_needed_files_are_downloaded_and_pickles_only_alone(hub: FakeHub, tmp_path: Path, kind: str) -> None:
    model = tiny_model()
    source, tensors = tmp_path / "source", tensors_of(model)
    if "in shards" in kind:
        name = "model.safetensors" if "safetensors" in kind else "pytorch_model.bin"
        write_shards(source, tensors, TINY_CONFIG, name=name)
    if kind in ("safetensors", "both"):
        write_safetensors(source, tensors, TINY_CONFIG)
    if kind == "pickle":
        write_pickle(source, tensors, TINY_CONFIG)
    write_tiny_vocabulary(source)
    files = files_of(source)
    extra = {"pytorch_model.bin": b"not needed"} if kind == "both" else {}
    folder = fetch(hub, files | extra)
    assert hub.downloaded() == sorted(files)
    assert [file.as_posix() for file in needed_files(folder)] == sorted(files)
    assert same_parameters(load_pretrained(folder), model)


def test_files_that_another_program_brought_are_not_needed(checkpoint: Path, tmp_path: Path) -> None:
    wanted = [file.as_posix() for file in needed_files(checkpoint)]
    assert wanted == sorted(files_of(checkpoint))
    for name in (*wanted, *COPIES, "pytorch_model.bin", "model.safetensors.index.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    assert [file.as_posix() for file in needed_files(tmp_path)] == wanted


def test_a_model_of_another_kind_is_refused_before_its_weights_are_downloaded(hub: FakeHub) -> None:
    files = {
        **hub.files,
        "config.json": json.dumps({"model_type": "llama"}).encode(),
        "vocab.txt": b"hello\n",
        "sentence_bert_config.json": b"[]",
    }
    with pytest.raises(CheckpointError) as caught:
        fetch(hub, files)
    assert str(caught.value).startswith(f"{REPOSITORY}: not a checkpoint that can be loaded\n")
    problems = "\n".join(caught.value.problems)
    assert "model_type: 'llama' is another architecture" in problems
    assert "mask_token is '[MASK]', which is not in the vocabulary" in problems
    assert "sentence_bert_config.json: must hold a JSON object" in problems
    assert "model.safetensors" not in hub.downloaded()


def test_an_index_cannot_name_files_of_other_folders(hub: FakeHub) -> None:
    del hub.files["model.safetensors"]
    index = json.dumps({"weight_map": {"x": "onnx/model.onnx", "y": "*"}}).encode()
    folder = fetch(hub, hub.files | {"model.safetensors.index.json": index})
    assert (folder / "model.safetensors.index.json").exists()
    assert set(hub.downloaded()) & set(COPIES) <= {"onnx/model.onnx"}
    with pytest.raises(CheckpointError, match="a shard must be a plain name"):
        load_pretrained(folder)
