from __future__ import annotations

from pathlib import Path

import pytest

from bert_core.checkpoint_files import is_plain_name
from bert_core.weight_layout import weight_layout
from tests.bert_core.folders import LFS_POINTER, write_index

SHARD = "model-00001-of-00001.safetensors"


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
    assert none == (
        "no weights: none of model.safetensors, model.safetensors.index.json, pytorch_model.bin, "
        "pytorch_model.bin.index.json is here"
    )
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


def test_many_missing_shards_are_counted(tmp_path: Path) -> None:
    listed = {f"t{number}": f"{number:03}.safetensors" for number in range(900)}
    write_index(tmp_path, listed | {"long": "9" * 100_000 + ".safetensors"}, name="model.safetensors")
    assert weight_layout(tmp_path).problems == (
        *(f"00{number}.safetensors: is missing" for number in range(5)),
        "896 more of that kind",
    )


def test_a_name_too_long_for_a_file_is_shown_in_part(tmp_path: Path) -> None:
    write_index(tmp_path, {"a": "9" * 100_000 + ".bin"}, name="pytorch_model.bin")
    (problem,) = weight_layout(tmp_path).problems
    assert problem.startswith("'9999")
    assert problem.endswith("cannot be read: File name too long")
    assert len(problem) < 300


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
