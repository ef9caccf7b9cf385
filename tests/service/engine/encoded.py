"""What the tests of encoding share."""

from __future__ import annotations

from service.engine.encoding import EncodedTask
from tests.tiny import TINY_VOCABULARY

LIMIT = 41
EMBED_LIMIT = 23


def pieces(encoded: EncodedTask, *, sequence: int = 0) -> str:
    return " ".join(TINY_VOCABULARY[token] for token in encoded.sequences[sequence].ids)
