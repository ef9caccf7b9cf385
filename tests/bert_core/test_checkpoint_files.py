from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from bert_core.checkpoint_files import (
    CheckpointError,
    file_fault,
    first_few,
    is_plain_name,
    read_bytes,
    read_json,
    read_json_object,
    shortened,
    shown,
    shown_value,
)
from bert_core.tokenizer_description import TokenizerError
from tests.bert_core.folders import LFS_POINTER


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


def test_a_file_larger_than_allowed_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": 1}')
    assert read_bytes(path, max_bytes=8) == b'{"a": 1}'
    with pytest.raises(ValueError, match=r"^config\.json: is 8 bytes large; no more than 7 are read$"):
        read_json_object(path, max_bytes=7)
    os.truncate(path, 8_000_000_000)
    with pytest.raises(ValueError, match=r"^config\.json: is 8,000,000,000 bytes large; no more than 10,000,000 are"):
        read_json_object(path)


@pytest.mark.parametrize("name", ["\ud800.bin", "a\nb.bin"])
def test_a_plain_name_can_be_printed(name: str) -> None:
    assert is_plain_name("北.bin")
    assert not is_plain_name(name)


def test_long_lists_are_shortened_with_a_count() -> None:
    names = [f"n{number}" for number in range(12)]
    assert shortened(names[:10]) == "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9"
    assert shortened(names) == "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 2 more"
    assert shortened(iter(names), limit=1) == "n0 and 11 more"


def test_names_cannot_break_the_line() -> None:
    assert shown("bert.x") == "bert.x"
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 10_000)) == 202


def test_values_are_cut_at_100_characters() -> None:
    assert shown_value(["a\n", None]) == r"['a\n', None]"
    assert shown_value("x" * 98) == repr("x" * 98)
    assert shown_value("x" * 99) == "'" + "x" * 99 + "…"
    assert shown_value(1 << 20_000) == "a value of type int that is too large to show"


def test_many_problems_are_counted() -> None:
    letters = list("abcdefg")
    assert first_few(letters[:5]) == list("abcde")
    assert first_few(letters) == [*"abcde", "2 more of that kind"]


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (CheckpointError, "not a checkpoint that can be loaded"),
        (TokenizerError, "not a BERT tokenizer that can be loaded"),
    ],
)
def test_errors_hold_every_problem_and_survive_the_way_out_of_another_process(
    kind: type[CheckpointError], verdict: str
) -> None:
    error = pickle.loads(pickle.dumps(kind(Path("somewhere/model"), ["first", "second"])))
    assert type(error) is kind
    assert str(error).split("\n  ") == [f"somewhere/model: {verdict}", "first", "second"]
    assert (error.path, error.problems) == (Path("somewhere/model"), ("first", "second"))
