"""Pieces and their ids, as the files of a checkpoint folder list them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert_core.checkpoint_files import file_fault, read_json_object, shortened

logger = logging.getLogger(__name__)

_MAX_ID = 2**32 - 1
_SHOWN = 5


@dataclass(slots=True)
class Vocabulary:
    """Pieces and ids, from one file or several.

    token_ids: piece to id.
    tokens: id to piece; it alone holds the earlier ids of a piece that `vocab.txt` lists twice.
    """

    token_ids: dict[str, int] = field(default_factory=dict)
    tokens: dict[int, str] = field(default_factory=dict)

    @classmethod
    def from_vocab_txt(cls, path: Path) -> Vocabulary:
        """Line numbers, from 0, are the ids; empty lines at the end count for nothing.

        White space at the end of a line is no part of the piece, and a piece that comes twice gets the later id, as
        in the reference.

        Raises:
            ValueError: the file cannot be read; the message begins with its name.
        """
        if fault := file_fault(path):
            raise ValueError(fault)
        content = path.read_bytes()
        try:
            lines = content.decode("utf-8-sig").rstrip().split("\n")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ValueError(f"{path.name}: line {line} is not UTF-8: byte {content[error.start]:#04x}") from None
        tokens = dict(enumerate(line.rstrip() for line in lines))
        token_ids = {token: token_id for token_id, token in tokens.items()}
        repeated = [token for token_id, token in tokens.items() if token and token_ids[token] != token_id]
        if repeated:
            logger.warning("%s: pieces listed more than once, the last line counts: %s", path, shortened(repeated))
        return cls(token_ids, tokens)

    def add(self, pairs: Iterable[tuple[str, Any]]) -> list[str]:
        """Take over pieces with their ids; the problems found: no id, or one that contradicts those here."""
        problems = []
        for token, token_id in pairs:
            if type(token_id) is not int or not 0 <= token_id <= _MAX_ID:
                problems.append(f"the id of {token!r} is {token_id!r}; it must be a whole number from 0")
            elif self.token_ids.get(token, token_id) != token_id:
                problems.append(f"the id of {token!r} is {token_id}; elsewhere it is {self.token_ids[token]}")
            elif self.tokens.get(token_id, token) != token:
                problems.append(f"id {token_id} is {token!r}; elsewhere it is {self.tokens[token_id]!r}")
            else:
                self.token_ids[token] = token_id
                self.tokens[token_id] = token
        return _first(problems)

    def contradictions(self, other: Mapping[str, int]) -> list[str]:
        """Pieces to which `other` gives another id."""
        return _first(
            [
                f"the id of {token!r} is {token_id}; in tokenizer.json it is {self.token_ids[token]}"
                for token, token_id in other.items()
                if self.token_ids.get(token, token_id) != token_id
            ]
        )


def _first(problems: list[str]) -> list[str]:
    more = len(problems) - _SHOWN
    return problems if more <= 0 else [*problems[:_SHOWN], f"{more} more of that kind"]


def vocabulary_sizes(folder: Path) -> tuple[dict[str, int], list[str]]:
    """File name to highest id plus one, for the files that are there; and those that cannot be read, one line each.

    A model must have a row for each id. Whether the files make a tokenizer is not asked.
    """
    sizes: dict[str, int] = {}
    problems: list[str] = []
    for name, ids_of in _ID_READERS.items():
        if os.path.lexists(folder / name):
            try:
                ids = ids_of(folder / name)
            except ValueError as error:
                problems.append(str(error))
            else:
                sizes[name] = max((number for number in ids if isinstance(number, int)), default=-1) + 1
    return sizes, problems


def _line_numbers(path: Path) -> Iterable[object]:
    """One piece a line; blank lines at the end are none."""
    if fault := file_fault(path):
        raise ValueError(fault)
    return range(path.read_bytes().rstrip().count(b"\n") + 1)


def _pipeline_ids(path: Path) -> Iterable[object]:
    values = read_json_object(path)
    model, added = values.get("model"), values.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    return ids + [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else ids


def _added_ids(path: Path) -> Iterable[object]:
    return read_json_object(path).values()


def _config_ids(path: Path) -> Iterable[object]:
    tokens = read_json_object(path).get("added_tokens_decoder")
    return [int(token_id) for token_id in tokens if token_id.isdecimal()] if isinstance(tokens, dict) else []


_ID_READERS: Mapping[str, Callable[[Path], Iterable[object]]] = {
    "vocab.txt": _line_numbers,
    "tokenizer.json": _pipeline_ids,
    "added_tokens.json": _added_ids,
    "tokenizer_config.json": _config_ids,
}
