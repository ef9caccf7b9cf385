"""How many ids the tokenizer files of a checkpoint folder give out. The model must have a row for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bert_core.checkpoint_files import file_fault, read_json_object


def vocabulary_sizes(folder: Path) -> tuple[dict[str, int], list[str]]:
    """File name to highest id plus one, for the files that are there; and those that cannot be read, one line each."""
    sizes: dict[str, int] = {}
    problems: list[str] = []
    for name, size_of in _SIZES.items():
        if os.path.lexists(folder / name):
            try:
                sizes[name] = size_of(folder / name)
            except ValueError as error:
                problems.append(str(error))
    return sizes, problems


def _lines(path: Path) -> int:
    """One piece a line; blank lines at the end are none."""
    if fault := file_fault(path):
        raise ValueError(fault)
    return path.read_bytes().rstrip().count(b"\n") + 1


def _tokenizer_ids(path: Path) -> int:
    values = read_json_object(path)
    model, added = values.get("model"), values.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    ids += [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return _after_highest(ids)


def _added_ids(path: Path) -> int:
    return _after_highest(read_json_object(path).values())


def _after_highest(ids: Iterable[object]) -> int:
    return max((number for number in ids if isinstance(number, int)), default=-1) + 1


_SIZES: Mapping[str, Callable[[Path], int]] = {
    "vocab.txt": _lines,
    "tokenizer.json": _tokenizer_ids,
    "added_tokens.json": _added_ids,
}
