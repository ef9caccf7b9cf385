from __future__ import annotations

import os
from pathlib import Path

import pytest

from bert_core.checkpoint_files import (
    file_fault,
    is_plain_name,
    read_json,
    read_json_object,
    shortened,
    shown,
    weight_layout,
)
from tests.bert_core.folders import LFS_POINTER, write_index

SHARD = "model-00001-of-00001.safetensors"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty (0 bytes), as after a download or copy that did not finish"),
        (LFS_POINTER, "is a Git LFS pointer, not the file that it stands for; run `git lfs pull`"),
        (b"\n <!DOCTYPE html><p>404", "is a web page, as after a download that was answered by an error page"),
        (b"version 2 of a vocabulary", None),
        (b"<s>\n</s>\n", None),
    ],
)
def test_faults_that_the_first_bytes_show(tmp_path: Path, content: bytes, fault: str | None) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    assert file_fault(path) == (f"vocab.txt: {fault}" if fault else None)


def test_faults_of_what_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    assert file_fault(path) == "model.safetensors: is missing"
    path.symlink_to("nowhere")
    assert file_fault(path) == "model.safetensors: is a symbolic link to a file that is missing"
    path.unlink()
    path.symlink_to(path.name)
    assert str(file_fault(path)).startswith("model.safetensors: cannot be read: ")
    path.unlink()
    path.mkdir()
    assert file_fault(path) == "model.safetensors: is not a regular file"
    path.rmdir()
    os.mkfifo(path)
    assert file_fault(path) == "model.safetensors: is not a regular file"


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    path.write_text('[{"name": "北"}]', encoding="utf-8")
    assert read_json(path) == [{"name": "北"}]
    with pytest.raises(ValueError, match=r"^modules\.json: must hold a JSON object, holds list$"):
        read_json_object(path)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe{}", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^config\.json: is not JSON in UTF-8: "):
        read_json_object(path)


@pytest.mark.parametrize(
    ("present", "chosen", "passed_over"),
    [
        (["pytorch_model.bin", "model.safetensors"], "model.safetensors", ("pytorch_model.bin",)),
        (["model.safetensors.index.json", "model.safetensors"], "model.safetensors", ("model.safetensors.index.json",)),
        (["pytorch_model.bin", "model.safetensors.index.json"], SHARD, ("pytorch_model.bin",)),
        (["pytorch_model.bin"], "pytorch_model.bin", ()),
    ],
)
def test_which_weights_are_taken(tmp_path: Path, present: list[str], chosen: str, passed_over: tuple[str, ...]) -> None:
    for name in (*present, SHARD):
        (tmp_path / name).write_bytes(b"weights")
    write_index(tmp_path, {"tensor": SHARD}, name="model.safetensors")
    if "model.safetensors.index.json" not in present:
        (tmp_path / "model.safetensors.index.json").unlink()
    layout = weight_layout(tmp_path)
    assert (layout.files, layout.passed_over, layout.problems) == ((tmp_path / chosen,), passed_over, ())
    assert layout.listed == ({"tensor": SHARD} if chosen == SHARD else None)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("tf_model.h5", "from_tf=True"),
        ("bert_model.ckpt.index", "convert_bert_original_tf_checkpoint_to_pytorch"),
        ("bert_model.ckpt.data-00000-of-00001", "convert_bert_original_tf_checkpoint_to_pytorch"),
        ("flax_model.msgpack", "from_flax=True"),
        ("model.onnx", "ONNX"),
    ],
)
def test_weights_of_other_frameworks_are_named_with_the_way_to_convert_them(
    tmp_path: Path, file: str, said: str
) -> None:
    (tmp_path / file).touch()
    none, foreign = weight_layout(tmp_path).problems
    assert none.startswith("no weights: none of model.safetensors, pytorch_model.bin is here")
    assert foreign.startswith(f"{file}: ")
    assert said in foreign


@pytest.mark.parametrize(
    "name",
    [
        "../x.safetensors",
        "/x.safetensors",
        "a/x.safetensors",
        "..",
        "",
        ".",
        "a\\x.safetensors",
        "C:x.safetensors",
        "x\0.safetensors",
    ],
)
def test_names_that_may_leave_the_folder(tmp_path: Path, name: str) -> None:
    assert not is_plain_name(name)
    (tmp_path / "x.safetensors").write_bytes(b"weights")
    folder = tmp_path / "folder"
    folder.mkdir()
    write_index(folder, {"tensor": name}, name="model.safetensors")
    layout = weight_layout(folder)
    assert layout.files == ()
    (problem,) = layout.problems
    assert "a shard must be a plain name" in problem
    assert repr(name) in problem


def test_a_safetensors_index_cannot_name_a_pickle(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"weights")
    write_index(tmp_path, {"tensor": "x.bin"}, name="model.safetensors")
    (problem,) = weight_layout(tmp_path).problems
    assert "a plain name of a .safetensors file" in problem


@pytest.mark.parametrize("listed", [None, [], {}, "model", {"tensor": 7}, {"tensor": None}])
def test_an_index_without_a_map(tmp_path: Path, listed: object) -> None:
    write_index(tmp_path, listed, name="pytorch_model.bin")
    (problem,) = weight_layout(tmp_path).problems
    assert problem.startswith("pytorch_model.bin.index.json: weight_map must be")


def test_an_index_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(LFS_POINTER)
    (problem,) = weight_layout(tmp_path).problems
    assert problem.startswith("model.safetensors.index.json: is a Git LFS pointer")


def test_long_lists_are_shortened_with_a_count() -> None:
    names = [f"n{number}" for number in range(12)]
    assert shortened(names[:10]) == "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9"
    assert shortened(names) == "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more"
    assert shortened(iter(names), limit=1) == "n0 and 11 more"


def test_names_cannot_break_the_line() -> None:
    assert shown("bert.x") == "bert.x"
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 10_000)) == 202
