from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bert_core.vocabulary_files import vocabulary_sizes
from tests.bert_core.folders import LFS_POINTER


@pytest.mark.parametrize("text", ["a\nb\nc", "a\nb\nc\n", "a\r\nb\r\nc\r\n", "a\n\nc\n\n\n"])
def test_lines_of_a_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "vocab.txt").write_bytes(text.encode())
    assert vocabulary_sizes(tmp_path) == ({"vocab.txt": 3}, [])


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({"model": {"vocab": {"a": 0, "b": 7}}, "added_tokens": []}, 8),
        ({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 4}, {"id": 2}]}, 5),
        ({"model": {"vocab": ["a"]}, "added_tokens": [{"id": "x"}, 4]}, 0),
        ({"model": 1, "added_tokens": 1}, 0),
        ({}, 0),
    ],
)
def test_ids_of_a_tokenizer_file(tmp_path: Path, values: dict[str, Any], size: int) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    assert vocabulary_sizes(tmp_path) == ({"tokenizer.json": size}, [])


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ({"added_tokens_decoder": {"7": {"content": "[NEW]"}, "5": {"content": "[OLD]"}}}, 8),
        ({"added_tokens_decoder": {"x": {}, "-3": {}}}, 0),
        ({"added_tokens_decoder": {"7" * 5000: {}, "3": {}}}, 4),
        ({"added_tokens_decoder": ["x"]}, 0),
        ({"do_lower_case": True}, 0),
    ],
)
def test_ids_of_added_tokens_in_the_configuration(tmp_path: Path, values: dict[str, Any], size: int) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    assert vocabulary_sizes(tmp_path) == ({"tokenizer_config.json": size}, [])


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "added_tokens.json", "tokenizer_config.json"])
def test_files_of_absurd_size_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}")
    os.truncate(tmp_path / name, 8_000_000_000)
    sizes, (problem,) = vocabulary_sizes(tmp_path)
    assert sizes == {}
    assert problem.startswith(f"{name}: is 8,000,000,000 bytes large; no more than ")


def test_all_files_are_looked_at(tmp_path: Path) -> None:
    assert vocabulary_sizes(tmp_path) == ({}, [])
    (tmp_path / "vocab.txt").write_bytes(LFS_POINTER)
    (tmp_path / "tokenizer.json").write_text("{")
    (tmp_path / "added_tokens.json").write_text('{"[MASK]": 103}')
    sizes, problems = vocabulary_sizes(tmp_path)
    assert sizes == {"added_tokens.json": 104}
    assert [problem.split(":")[0] for problem in problems] == ["vocab.txt", "tokenizer.json"]
