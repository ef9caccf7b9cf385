"""Long JSON in pieces: `orjson` stops all other threads while it writes, so it must not write much at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

import numpy as np
import orjson
from starlette.responses import Response, StreamingResponse

DICTS_AT_ONCE = 8

BYTES_AT_ONCE = 262_144

_NUMBERS = (int, float, np.number)


def dump(content: object) -> bytes:
    """JSON of dicts, lists, numbers, strings and arrays of numpy."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def dump_in_pieces(content: object) -> bytes:
    """The same bytes; slower, but other threads run in between."""
    return b"".join(_pieces(content))


def _pieces(content: object) -> Iterator[bytes]:
    """Down to rows of arrays, some flat dicts at a time, and what else holds no lists."""
    if isinstance(content, dict) and not _is_flat(content):
        fields = ((dump(name) + b":", _pieces(value)) for name, value in content.items())
        yield from _joined(fields, opening=b"{", closing=b"}")
    elif isinstance(content, list) and content and isinstance(content[0], dict) and _is_flat(content[0]):
        slices = (content[first : first + DICTS_AT_ONCE] for first in range(0, len(content), DICTS_AT_ONCE))
        yield from _joined(((b"", (dump(part)[1:-1],)) for part in slices), opening=b"[", closing=b"]")
    elif isinstance(content, list | np.ndarray) and len(content) and not isinstance(content[0], _NUMBERS):
        yield from _joined(((b"", _pieces(value)) for value in content), opening=b"[", closing=b"]")
    else:
        yield dump(content)


def _is_flat(content: dict[str, object]) -> bool:
    return not any(isinstance(value, list | dict | np.ndarray) for value in content.values())


def _joined(members: Iterable[tuple[bytes, Iterable[bytes]]], *, opening: bytes, closing: bytes) -> Iterator[bytes]:
    before = opening
    for name, pieces in members:
        yield before + name
        yield from pieces
        before = b","
    yield closing


def json_answer(content: bytes, *, headers: Mapping[str, str]) -> Response:
    """A response; a long one is handed to the server as fast as the client reads it, and so is in memory once."""
    if len(content) <= BYTES_AT_ONCE:
        return Response(content, headers=headers, media_type="application/json")
    headers = {**headers, "content-length": str(len(content))}
    return StreamingResponse(_parts(content), headers=headers, media_type="application/json")


async def _parts(content: bytes) -> AsyncIterator[bytes]:
    for first in range(0, len(content), BYTES_AT_ONCE):
        yield content[first : first + BYTES_AT_ONCE]
