"""The usual way to run a batch: texts padded to the longest of their batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.benchmarks.workers.protocol import FloatArray

BATCH_TEXTS = 32


class PaddedRunner:
    """Batches of `BATCH_TEXTS` texts.

    Args:
        tokenize: texts to the padded tensors of one batch.
        forward: those to embeddings `[B, D]`.
        sort: first sort all texts by length, as a list that is known in advance can be; else the order of arrival.
    """

    def __init__(
        self, *, tokenize: Callable[[list[str]], Any], forward: Callable[[Any], FloatArray], sort: bool
    ) -> None:
        self._tokenize = tokenize
        self._forward = forward
        self._sort = sort

    def encode(self, texts: Sequence[str]) -> tuple[list[int], list[Any]]:
        """The order in which the texts run, and the batches."""
        order = sorted(range(len(texts)), key=lambda n: len(texts[n])) if self._sort else list(range(len(texts)))
        chunks = [order[first : first + BATCH_TEXTS] for first in range(0, len(order), BATCH_TEXTS)]
        return order, [self._tokenize([texts[n] for n in chunk]) for chunk in chunks]

    def embed(self, encoded: tuple[list[int], list[Any]]) -> FloatArray:
        """`[N, D]`, in the order of the texts."""
        order, batches = encoded
        found = np.concatenate([self._forward(batch) for batch in batches])
        vectors = np.empty_like(found)
        vectors[order] = found
        return vectors
