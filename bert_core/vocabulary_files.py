"""Pieces and their ids, as the files of a checkpoint folder list them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert_core.checkpoint_files import (
    MAX_VOCABULARY_BYTES,
    first_few,
    read_bytes,
    read_json_object,
    shortened,
    shown_value,
)

logger = logging.getLogger(__name__)

_MAX_ID = 2**32 - 1
_MAX_UNUSED_IDS = 10_000


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
        content = read_bytes(path, max_bytes=MAX_VOCABULARY_BYTES)
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
                rule = "it must be a whole number from 0"
                problems.append(f"the id of {shown_value(token)} is {shown_value(token_id)}; {rule}")
            elif self.token_ids.get(token, token_id) != token_id:
                found = self.token_ids[token]
                problems.append(f"the id of {shown_value(token)} is {token_id}; elsewhere it is {found}")
            elif self.tokens.get(token_id, token) != token:
                other = shown_value(self.tokens[token_id])
                problems.append(f"id {token_id} is {shown_value(token)}; elsewhere it is {other}")
            else:
                self.token_ids[token] = token_id
                self.tokens[token_id] = token
        return first_few(problems)

    def contradictions(self, other: Mapping[str, int]) -> list[str]:
        """Pieces to which `other` gives another id."""
        return first_few(
            [
                f"the id of {shown_value(token)} is {token_id}; in tokenizer.json it is {self.token_ids[token]}"
                for token, token_id in other.items()
                if self.token_ids.get(token, token_id) != token_id
            ]
        )

    def gap_problem(self) -> str | None:
        """What is wrong if most ids below the highest belong to no token: whatever has a row an id would be huge."""
        highest = max(self.tokens, default=-1)
        if highest + 1 - len(self.tokens) <= _MAX_UNUSED_IDS:
            return None
        token = shown_value(self.tokens[highest])
        rule = f"no more than {_MAX_UNUSED_IDS} ids below it may be unused"
        return f"the id of {token} is {highest}, of {len(self.tokens)} tokens; {rule}"


def id_of_key(key: str) -> int | str:
    """The id that a key of a JSON object writes; the key itself if it writes none."""
    return int(key) if key.isdecimal() and len(key) <= len(str(_MAX_ID)) else key


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
    return range(read_bytes(path, max_bytes=MAX_VOCABULARY_BYTES).rstrip().count(b"\n") + 1)


def _pipeline_ids(path: Path) -> Iterable[object]:
    values = read_json_object(path, max_bytes=MAX_VOCABULARY_BYTES)
    model, added = values.get("model"), values.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    return ids + [token.get("id") for token in added if isinstance(token, dict)] if isinstance(added, list) else ids


def _added_ids(path: Path) -> Iterable[object]:
    return read_json_object(path).values()


def _config_ids(path: Path) -> Iterable[object]:
    tokens = read_json_object(path).get("added_tokens_decoder")
    return map(id_of_key, tokens) if isinstance(tokens, dict) else []


_ID_READERS: Mapping[str, Callable[[Path], Iterable[object]]] = {
    "vocab.txt": _line_numbers,
    "tokenizer.json": _pipeline_ids,
    "added_tokens.json": _added_ids,
    "tokenizer_config.json": _config_ids,
}
