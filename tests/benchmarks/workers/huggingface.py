"""`transformers`: `BertModel` with SDPA, mean pooling and normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer

from tests.benchmarks.checkpoint import full_length_checkpoint
from tests.benchmarks.workers.padded import PaddedRunner
from tests.benchmarks.workers.protocol import FloatArray, Handler, runner_handlers, serve


class Pooled(torch.nn.Module):
    """Padded ids to normalised mean-pooled embeddings; also what the graph exports hold."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """`[B, L]` and `[B, L]` to `[B, D]`."""
        hidden_BLD = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask_BL1 = attention_mask[..., None].to(hidden_BLD.dtype)
        pooled_BD = (hidden_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)
        return F.normalize(pooled_BD, dim=1)


def load_pooled(dtype: str, *, attention: str = "sdpa") -> Pooled:
    """The checkpoint's encoder in a dtype, with one of the kinds of attention of `transformers`."""
    model = AutoModel.from_pretrained(
        full_length_checkpoint(), dtype=getattr(torch, dtype), attn_implementation=attention, add_pooling_layer=False
    )
    return Pooled(model).eval()


def padded_tokenizer(tensors: str) -> Any:
    """Texts to padded tensors, `pt` or `np`."""
    tokenizer = AutoTokenizer.from_pretrained(full_length_checkpoint())

    def tokenize(texts: list[str]) -> Any:
        return tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=512,
            return_tensors=tensors,
            return_token_type_ids=False,
        )

    return tokenize


def load(options: Mapping[str, Any]) -> dict[str, Handler]:
    """Options: dtype, sort, threads."""
    torch.set_num_threads(options["threads"])
    pooled = load_pooled(options["dtype"])

    def forward(batch: Any) -> FloatArray:
        with torch.inference_mode():
            vectors: FloatArray = pooled(**batch).float().numpy()
        return vectors

    return runner_handlers(PaddedRunner(tokenize=padded_tokenizer("pt"), forward=forward, sort=options["sort"]))


if __name__ == "__main__":
    serve(load, packages=("transformers", "torch"))
