"""Request bodies of the three routes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import orjson

from service.load_generator.texts import Texts

ROUTES = ("embed", "fill-mask", "next-sentence")
MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class RequestBody:
    """One request: its route, its JSON, and how many texts (or pairs) it holds."""

    route: str
    json_bytes: bytes
    texts: int


class Requests:
    """An endless row of requests with distinct texts.

    Args:
        texts: what they hold.
        route: one of `ROUTES`, or `mixed` for all of them in turn.
        list_size: texts or pairs in each; one goes without a list.
        mask_token: how the model writes `[MASK]`.
    """

    def __init__(self, texts: Texts, *, route: str, list_size: int, mask_token: str) -> None:
        self._texts = texts
        self._routes = cycle(ROUTES if route == MIXED else (route,))
        self._list_size = list_size
        self._mask_token = mask_token

    def next(self) -> RequestBody:
        """The next request."""
        route = next(self._routes)
        items = [self._item(route) for _ in range(self._list_size)]
        inputs = items if self._list_size > 1 else items[0]
        return RequestBody(route, orjson.dumps({"inputs": inputs}), self._list_size)

    def _item(self, route: str) -> Any:
        match route:
            case "embed":
                return self._texts.text()
            case "fill-mask":
                return self._texts.masked(self._mask_token)
            case _:
                text, text_pair = self._texts.pair()
                return {"text": text, "text_pair": text_pair}
