"""Tokens that are matched before a text is split, in the forms that the files of a checkpoint write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def listed_tokens(value: Any) -> Sequence[Any]:
    """The tokens of a field: none, one, a list, or an object with one to each name."""
    if isinstance(value, dict) and "content" not in value:
        return list(value.values())
    if value is None or value == "":
        return ()
    return value if isinstance(value, list) else (value,)


def content(token: Any) -> str:
    """The piece itself, of a string or of an object with content and flags; empty if it is neither."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def added_token(token: Any, *, token_id: int) -> dict[str, Any]:
    """The entry for `tokenizer.json`. Only tokens that are not special are matched in the normalised text."""
    given: Mapping[str, Any] = token if isinstance(token, dict) else {}
    flags = {name: bool(given.get(name)) for name in _FLAGS}
    if given.get("normalized") is None:
        flags["normalized"] = not flags["special"]
    return {"id": token_id, "content": content(token), **flags}
