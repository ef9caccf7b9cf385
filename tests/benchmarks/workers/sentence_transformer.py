"""`sentence-transformers`: `encode` with its defaults, which sort by length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from tests.benchmarks.checkpoint import full_length_checkpoint
from tests.benchmarks.workers.protocol import FloatArray, Handler, runner_handlers, serve


class SentenceTransformerRunner:
    """Tokenization is part of `embed`: the library has no call without it."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def encode(self, texts: Sequence[str]) -> list[str]:
        """The texts as they are."""
        return list(texts)

    def embed(self, encoded: list[str]) -> FloatArray:
        """`[N, D]`."""
        return np.asarray(self._model.encode(encoded, show_progress_bar=False), dtype=np.float32)


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: dtype, threads."""
    torch.set_num_threads(options["threads"])
    dtype = getattr(torch, options["dtype"])
    model = SentenceTransformer(str(full_length_checkpoint()), device="cpu", model_kwargs={"dtype": dtype})
    return runner_handlers(SentenceTransformerRunner(model))


if __name__ == "__main__":
    serve(load, packages=("sentence-transformers", "transformers", "torch"))
