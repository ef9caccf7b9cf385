"""Files of a checkpoint folder: what is wrong with one before it is read, and reading JSON.

Faults are lines of text that begin with the file's name, so that one `CheckpointError` can tell all of a folder.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_GIT_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_WEB_PAGES = (b"<!doctype html", b"<html")

MAX_JSON_BYTES = 10_000_000
MAX_VOCABULARY_BYTES = 100_000_000


class CheckpointError(ValueError):
    """A folder that makes no model, with everything that is wrong with it.

    Args:
        path: the folder.
        problems: one line each.
    """

    _VERDICT = "not a checkpoint that can be loaded"

    def __init__(self, path: Path, problems: Iterable[str]) -> None:
        self.path = path
        self.problems = tuple(problems)
        super().__init__(path, self.problems)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.path}: {self._VERDICT}", *self.problems])


def shown(name: str) -> str:
    """A name from a file as it can be put into one line of a message."""
    return name if name.isprintable() and len(name) <= 200 else ascii(name[:200])


def shown_value(value: object) -> str:
    """A value from a file, as Python writes it, as it can be put into one line of a message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; lists in lists in lists
        text = f"a value of type {type(value).__name__} that is too large to show"
    return text if len(text) <= 100 else f"{text[:100]}…"


def shortened(names: Iterable[str], *, limit: int = 10) -> str:
    """Names in one line, with a count of those after the first ones."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(shown, names[:limit])) + more


def first_few(problems: Sequence[str], *, limit: int = 5) -> list[str]:
    """The first problems of a kind, with a count of those after them."""
    more = len(problems) - limit
    return list(problems) if more <= 0 else [*problems[:limit], f"{more} more of that kind"]


def folder_fault(path: Path) -> str | None:
    """Why a path cannot be a checkpoint folder; None if it is a folder."""
    if os.path.isdir(path):  # a name too long to be one is no error, as it is of `Path`
        return None
    return "is not a folder" if os.path.exists(path) else "no such folder"


def file_fault(path: Path) -> str | None:
    """Why a file cannot be what its name says, judged by its first bytes; None if nothing speaks against it."""
    name = shown(path.name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"{name}: is not a regular file"
        with path.open("rb") as file:
            beginning = file.read(64)
    except FileNotFoundError:
        dangling = path.is_symlink()
        return f"{name}: is a symbolic link to a file that is missing" if dangling else f"{name}: is missing"
    except OSError as error:
        return f"{name}: cannot be read: {error.strerror}"
    if not beginning:
        return f"{name}: is empty (0 bytes), as after a download or copy that did not finish"
    if beginning.startswith(_GIT_LFS_POINTER):
        return f"{name}: is a Git LFS pointer, not the file that it stands for; run `git lfs pull`"
    if beginning.lstrip().lower().startswith(_WEB_PAGES):
        return f"{name}: is a web page, as after a download that was answered by an error page"
    return None


def read_bytes(path: Path, *, max_bytes: int) -> bytes:
    """All bytes of a file.

    Raises:
        ValueError: it cannot be read, or is larger than `max_bytes`; the message begins with the file's name.
    """
    if fault := file_fault(path):
        raise ValueError(fault)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ValueError(f"{path.name}: is {size:,} bytes large; no more than {max_bytes:,} are read")
        return file.read(max_bytes)


def read_json_object(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read a file that must hold one JSON object.

    Raises:
        ValueError: it cannot be read, is larger than `max_bytes`, or holds something else; the message begins with the
            file's name.
    """
    values = read_json(path, max_bytes=max_bytes)
    if not isinstance(values, dict):
        raise ValueError(f"{path.name}: must hold a JSON object, holds {type(values).__name__}")
    return values


def read_json(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> object:
    """Read a JSON file in UTF-8.

    Raises:
        ValueError: it cannot be read, is larger than `max_bytes`, or is not JSON; the message begins with the file's
            name.
    """
    content = read_bytes(path, max_bytes=max_bytes)
    try:
        values: object = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name}: is not JSON in UTF-8: {error}") from None
    return values


def is_plain_name(name: str) -> bool:
    """Whether a name from a file stays in its folder and can be one: no separators of any platform, no drive, no `..`.

    Characters that cannot be printed, as halves of surrogate pairs, are refused too.
    """
    return name not in ("", ".", "..") and name.isprintable() and not set(name) & set("/\\:")
