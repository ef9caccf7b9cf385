"""The keys that requests may carry: one without a name, and a file of named ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from service.settings import Settings, SettingsError, shown_flag

# Begins with a letter, so that no name is an address.
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_NAME_RULE = "the name must be 1 to 64 letters, digits, dots, underscores and dashes, beginning with a letter"


class ApiKeys:
    """Whose key is it?

    A key is looked up by its digest under a secret of this process: how long that takes tells nothing about the keys,
    and is the same for one key and for thousands.

    Args:
        names: to each key the name of its owner, or None.
    """

    def __init__(self, names: Mapping[str, str | None]) -> None:
        self._secret = os.urandom(32)
        self._names = {self._digest(key.encode()): name for key, name in names.items()}

    def client_of(self, key: bytes, *, address: str) -> str | None:
        """Who takes turns in the queue: the owner of a key, or the address if it has none; None for a wrong key."""
        digest = self._digest(key)
        return (self._names[digest] or address) if digest in self._names else None

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, key=self._secret, digest_size=32).digest()


def load_api_keys(settings: Settings) -> ApiKeys | None:
    """The keys that the settings name: `api_key`, those in `api_key_file`, or both; None if requests need none.

    Raises:
        SettingsError: the file can't be read, or with a line per fault in it.
    """
    names: dict[str, str | None] = {}
    if settings.api_key is not None:
        names[settings.api_key.get_secret_value()] = None
    if settings.api_key_file is not None:
        names |= _read_file(Path(settings.api_key_file), names)
    return ApiKeys(names) if names else None


def _read_file(path: Path, known: Mapping[str, str | None]) -> dict[str, str]:
    """A `name:key` a line; blank lines, and lines that begin with `#`, don't count, nor does space around the parts.

    A name may have several keys, so that one can be replaced without an outage.
    """
    place = f"{shown_flag('api_key_file')} is {str(path)!r}"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise SettingsError(f"{place}: {os.strerror(error.errno) if error.errno else error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{place}: must be text in UTF-8") from None
    numbered = {number: line.strip() for number, line in enumerate(lines, start=1)}
    entries = {number: line for number, line in numbered.items() if line and not line.startswith("#")}
    names: dict[str, str] = {}
    faults = list(_take_entries(entries, names=names, known=known))
    if not entries:
        faults = ["must hold at least one line name:key"]
    if faults:
        raise SettingsError("\n".join(f"{place}: {fault}" for fault in faults))
    return names


def _take_entries(
    entries: Mapping[int, str], *, names: dict[str, str], known: Mapping[str, str | None]
) -> Iterator[str]:
    """Put the good entries into `names`, and tell what is wrong with the others, never with a part of them."""
    first_lines: dict[str, int] = {}
    for number, line in entries.items():
        name, colon, key = (part.strip() for part in line.partition(":"))
        if not colon:
            yield f"line {number}: must be name:key, with a colon"
        elif not _NAME.fullmatch(name):
            yield f"line {number}: {_NAME_RULE}"
        elif not key:
            yield f"line {number}: the key must not be empty"
        elif not key.isprintable() or " " in key:
            yield f"line {number}: the key must not hold spaces or control characters"
        elif key in known:
            yield f"line {number}: the key is that of {shown_flag('api_key')}"
        elif key in first_lines:
            yield f"line {number}: the key is that of line {first_lines[key]}"
        else:
            first_lines[key] = number
            names[key] = name
