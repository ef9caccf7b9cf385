from __future__ import annotations

import collections
import json
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bert_core.heads import Heads
from bert_core.model import BertForPreTraining
from bert_core.weight_files import read_tensors, stored_tensors
from tests.bert_core.folders import tensors_of, write_pickle, write_safetensors
from tests.tiny import tiny_config, tiny_model

TENSORS = {
    "b.single": torch.randn(5, 3),
    "a.half": torch.randn(7).half(),
    "c.brain": torch.randn(2, 1, 4).bfloat16(),
    "d.double": torch.randn(1, dtype=torch.float64),
    "e.integer": torch.arange(6),
    "f.scalar": torch.tensor(0.5),
}


def write(folder: Path, suffix: str, tensors: dict[str, Tensor] = TENSORS) -> Path:
    path = folder / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path, _use_new_zipfile_serialization=suffix != ".legacy.bin")
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".bin", ".legacy.bin"])
def test_what_is_stored_and_what_is_read(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, suffix)
    stored = {tensor.name: tensor for tensor in stored_tensors(path)}
    assert {name: tensor.shape for name, tensor in stored.items()} == {n: tuple(t.shape) for n, t in TENSORS.items()}
    assert {name for name, tensor in stored.items() if not tensor.is_weight} == {"e.integer"}
    assert {name: t.num_bytes for name, t in stored.items() if t.is_weight} == {
        name: tensor.nbytes for name, tensor in TENSORS.items() if name != "e.integer"
    }
    read = {tensor.name: values.clone() for tensor, values in read_tensors(stored.values())}
    assert read.keys() == TENSORS.keys()
    for name, values in read.items():
        assert values.dtype == TENSORS[name].dtype
        assert torch.equal(values, TENSORS[name])


def test_only_what_is_wanted_is_read_from_several_files(tmp_path: Path) -> None:
    first, second = write(tmp_path, ".safetensors"), write(tmp_path, ".bin", {"b.single": torch.ones(2)})
    wanted = [stored for file in (second, first) for stored in stored_tensors(file) if stored.name[0] in "bc"]
    read = [(stored, values.clone()) for stored, values in read_tensors(wanted)]
    assert {stored for stored, _ in read} == set(wanted)
    for stored, values in read:
        assert torch.equal(values, torch.ones(2) if stored.file == second else TENSORS[stored.name])
    assert list(read_tensors([])) == []


def test_the_names_of_dtypes(tmp_path: Path) -> None:
    names = [
        {t.name[0]: t.dtype for t in stored_tensors(write(tmp_path, suffix))} for suffix in (".safetensors", ".bin")
    ]
    assert names == [
        {"a": "F16", "b": "F32", "c": "BF16", "d": "F64", "e": "I64", "f": "F32"},
        {"a": "float16", "b": "float32", "c": "bfloat16", "d": "float64", "e": "int64", "f": "float32"},
    ]


def safetensors_bytes(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def f32(begin: int, end: int, shape: list[int]) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "content",
    [
        b"seven b",
        bytes.fromhex("409DDF0700000000"),
        b"\xff" * 64,
        b"PK\x03\x04 a pickle under another name",
        safetensors_bytes({"a": f32(0, 8, [2]), "b": f32(4, 12, [2])}, bytes(12)),
        safetensors_bytes({"a": f32(0, 8, [2])}, bytes(4)),
        safetensors_bytes({"a": f32(0, 8, [2])}, bytes(12)),
        safetensors_bytes({"a": f32(0, 8, [3])}, bytes(8)),
        safetensors_bytes({"a": f32(8, 0, [2])}, bytes(8)),
        safetensors_bytes({"a": f32(0, 8, [2**62, 4])}, bytes(8)),
        safetensors_bytes(["a"], b""),
    ],
    ids=lambda content: repr(content[:24]),
)
def test_damaged_and_hostile_safetensors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"^model\.safetensors: is no whole safetensors .* after {len(content)} bytes"
    ):
        stored_tensors(path)


def test_an_empty_tensor_of_absurd_shape(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes({"a": f32(0, 0, [2**64 - 1, 0])}, b""))
    (stored,) = stored_tensors(path)
    assert (stored.shape, stored.num_bytes) == ((2**64 - 1, 0), 0)


def test_a_file_for_which_there_is_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    path = write(tmp_path, ".safetensors")
    monkeypatch.setattr("bert_core.weight_files.safe_open", fail)
    with pytest.raises(ValueError, match=r"^weights\.safetensors: is no whole .* \(MemoryError\); "):
        stored_tensors(path)


def test_long_names_in_an_error_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_bytes({"x" * 100_000: f32(0, 8, [3])}, bytes(8)))
    with pytest.raises(ValueError, match=r"^model\.safetensors: is no whole") as caught:
        stored_tensors(path)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("suffix", [".safetensors", ".bin", ".legacy.bin"])
@pytest.mark.parametrize("lost", [1, 100])
def test_files_that_are_cut_off(tmp_path: Path, suffix: str, lost: int) -> None:
    path = write(tmp_path, suffix)
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(ValueError, match=rf"^weights{suffix}: ".replace(".", r"\.")):
        stored_tensors(path)


class RunsCode:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["zip", "legacy", "plain"])
@pytest.mark.parametrize("wrap", [lambda code: code, lambda code: {"a": torch.ones(1), "code": code}])
def test_code_in_a_pickle_is_not_run(tmp_path: Path, form: str, wrap: Any) -> None:
    marker, path = tmp_path / "marker", tmp_path / "pytorch_model.bin"
    content = wrap(RunsCode(marker))
    if form == "plain":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(ValueError, match=r"^pytorch_model\.bin: is no pickle of tensors alone") as caught:
        stored_tensors(path)
    assert "weights_only" not in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize("bomb", ["data.pkl", "data/0"])
def test_a_zip_bomb_is_not_unpacked(tmp_path: Path, bomb: str) -> None:
    torch.save(TENSORS, tmp_path / "good.bin")
    with (
        zipfile.ZipFile(tmp_path / "good.bin") as good,
        zipfile.ZipFile(tmp_path / "model.bin", "w") as hostile,
    ):
        for part in good.infolist():
            if part.filename.endswith(bomb):
                hostile.writestr(part.filename, bytes(2**27), zipfile.ZIP_DEFLATED)
            else:
                hostile.writestr(part.filename, good.read(part))
    assert (tmp_path / "model.bin").stat().st_size < 2**20
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"^model\.bin: good/{bomb} in it is compressed"):
        stored_tensors(tmp_path / "model.bin")
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_an_optimizer_object_is_refused(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    torch.save({"state_dict": TENSORS, "optimizer": optimizer}, tmp_path / "model.bin")
    with pytest.raises(ValueError, match="is no pickle of tensors alone"):
        stored_tensors(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"state_dict": TENSORS, "epoch": 3}, "a training checkpoint, with epoch beside its state_dict"),
        ({"a": torch.ones(1), "epoch": 3}, "unlike epoch"),
        ({"a": torch.ones(1), 7: torch.ones(1)}, "unlike 7"),
        ({"state_dict": {"state_dict": TENSORS}}, "unlike state_dict"),
        ({"model": TENSORS}, "unlike model"),
        ({"a": torch.ones(2, 2).to_sparse()}, "unlike a"),
        ({"a": torch.ones(2, device="meta")}, "unlike a"),
        ({"a": torch.ones(1).expand(2**40, 7)}, "unlike a"),
        ([torch.ones(1)], "holds list"),
        (torch.ones(1), "holds Tensor"),
        (None, "holds NoneType"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_pickles_of_something_else(tmp_path: Path, content: object, said: str) -> None:
    torch.save(content, tmp_path / "model.bin")
    with pytest.raises(ValueError, match=r"^model\.bin: ") as caught:
        stored_tensors(tmp_path / "model.bin")
    assert said in str(caught.value)


def test_ordered_dictionaries_and_views_are_plain(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    torch.save(collections.OrderedDict(a=whole.t(), b=whole[1:], c=whole), tmp_path / "model.bin")
    read = {stored.name: values.clone() for stored, values in read_tensors(stored_tensors(tmp_path / "model.bin"))}
    assert torch.equal(read["a"], whole.t())
    assert torch.equal(read["b"], whole[1:])


@pytest.mark.parametrize(
    "content", [b"garbage", b"PK\x03\x04garbage", b"\x80\x02.", pickle.dumps({"a": 1})[:-1], b"\x80\x02(lp0\n"]
)
def test_garbage_under_the_name_of_a_pickle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"^model\.bin: "):
        stored_tensors(tmp_path / "model.bin")


def test_a_file_is_opened_again_before_more_than_the_largest_tensor_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    load = torch.load

    def counting(file: Path, **options: Any) -> Any:
        opened.append("mapped" if options["mmap"] else "whole")
        return load(file, **options)

    tensors = {"a": torch.ones(10), "b": torch.ones(4), "c": torch.ones(6), "d": torch.ones(1), "e": torch.ones(10)}
    stored = [stored_tensors(write(tmp_path, suffix, tensors)) for suffix in (".bin", ".legacy.bin")]
    monkeypatch.setattr(torch, "load", counting)
    for wanted in stored:
        assert [tensor.name for tensor, _ in read_tensors(wanted)] == list(tensors)
    assert opened == ["mapped"] * 4 + ["whole"]


@pytest.mark.parametrize("write_folder", [write_safetensors, write_pickle])
def test_loading_takes_the_memory_of_the_model_and_one_tensor(tmp_path: Path, write_folder: Any) -> None:
    config = tiny_config(hidden_size=512, intermediate_size=1024, num_hidden_layers=10)
    model = BertForPreTraining(config, heads=Heads(mlm=False, nsp=False, pooler=False))
    tensors = tensors_of(model)
    model_bytes = sum(tensor.nbytes for tensor in tensors.values())
    largest_bytes = max(tensor.nbytes for tensor in tensors.values())
    folder = write_folder(tmp_path / "large", tensors, config)
    tiny = tiny_model()
    warm_up = write_folder(tmp_path / "tiny", tensors_of(tiny), tiny.config)
    command = [sys.executable, "-m", "tests.bert_core.measure_loading", str(warm_up), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    slack_bytes = model_bytes // 10
    assert model_bytes * 0.9 < int(done.stdout) < model_bytes + largest_bytes + slack_bytes
