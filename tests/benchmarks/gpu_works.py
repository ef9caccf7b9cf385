"""What the GPU benchmark times: our encoder, our engine, and `transformers` with the same weights.

Axes: B texts of a batch, L their padded length, D hidden.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bert_core import BertForPreTraining, BertTokenizer
from bert_core.budget import groups_within
from bert_core.config import BertConfig
from bert_core.heads import mean_of_tokens
from bert_core.packing import PackedTokens, WantedRows
from service.engine.engine import Engine
from service.engine.sentence_files import SentenceFiles
from service.tasks import Embed
from tests.benchmarks.gpu_timing import TensorWork, Work
from tests.benchmarks.texts import CHECKPOINT
from tests.bert_core.parity import reference_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Models:
    """One set of random weights in three programs, on one device and in one dtype.

    engine_without_graphs: not warmed up, so that it has recorded none.
    budget_tokens: of a batch of the engine, as it sets it itself.
    """

    ours: BertForPreTraining
    engine: Engine
    engine_without_graphs: Engine
    budget_tokens: int
    reference: Any
    device: torch.device

    @classmethod
    def random(cls, config: BertConfig, *, device: torch.device, dtype: torch.dtype) -> Models:
        """Initialise as for pre-training."""
        torch.manual_seed(0)
        ours = BertForPreTraining(config).eval().requires_grad_(False)
        reference: Any = reference_of(ours)
        reference.set_attn_implementation("sdpa")
        ours.to(device, dtype)
        tokenizer = BertTokenizer.from_pretrained(CHECKPOINT)
        plain, engine = (
            Engine(model, tokenizer=tokenizer, sentence_files=SentenceFiles(), model_id="random")
            for model in (copy.deepcopy(ours), ours)
        )
        return cls(
            ours=ours,
            engine=engine,
            engine_without_graphs=plain,
            budget_tokens=engine.warm_up(),
            reference=reference.bert.to(device, dtype),
            device=device,
        )

    def packed(self, batch: Sequence[list[int]]) -> PackedTokens:
        """Our form of a batch, on the device."""
        lengths = [len(ids) for ids in batch]
        flat = torch.tensor([token for ids in batch for token in ids])
        positions = torch.cat([torch.arange(length) for length in lengths])
        return PackedTokens(
            ids_T=flat.to(self.device),
            segments_T=torch.zeros_like(flat).to(self.device),
            positions_T=positions.to(self.device),
            lengths=lengths,
        )

    def means(self, batches: Iterable[Sequence[list[int]]]) -> TensorWork:
        """Our encoder, mean pooling."""
        prepared = [self.packed(batch) for batch in batches]

        def work() -> Tensor:
            return torch.cat([mean_of_tokens(self.ours.bert.encode(packed), packed) for packed in prepared])

        return work

    def first_tokens(self, batch: Sequence[list[int]]) -> Work:
        """Our encoder, the last layer for first tokens alone."""
        packed = self.packed(batch)
        wanted = WantedRows(packed.first_rows_N, [1] * len(batch))
        return lambda: self.ours.bert.encode(packed, wanted=wanted)

    def answers(self, texts: Sequence[list[int]], *, engine: Engine | None = None) -> Work:
        """Our engine, from ids to vectors on the host, in batches of its token budget."""
        engine = engine or self.engine
        tasks = [engine.encode(Embed(text=tuple(ids), pooling="mean")) for ids in texts]
        batches = list(groups_within(tasks, budget=self.budget_tokens, cost=lambda task: task.compute_tokens))
        return lambda: [engine.run(batch) for batch in batches]

    def reference_means(self, batches: Iterable[Sequence[list[int]]]) -> TensorWork:
        """`transformers` over padded batches, mean pooling."""
        prepared = [_padded(batch, device=self.device) for batch in batches]

        def work() -> Tensor:
            means = []
            for ids_BL, mask_BL in prepared:
                hidden_BLD = self.reference(input_ids=ids_BL, attention_mask=mask_BL).last_hidden_state
                kept_BL1 = mask_BL[:, :, None].to(hidden_BLD.dtype)
                means.append((hidden_BLD * kept_BL1).sum(1) / kept_BL1.sum(1))
            return torch.cat(means)

        return work


def _padded(batch: Sequence[list[int]], *, device: torch.device) -> tuple[Tensor, Tensor]:
    longest = max(map(len, batch))
    ids_BL = torch.tensor([ids + [0] * (longest - len(ids)) for ids in batch])
    return ids_BL.to(device), (ids_BL != 0).long().to(device)


def in_batches(texts: Sequence[list[int]], *, size: int) -> list[Sequence[list[int]]]:
    """Cut into batches of `size`, in order."""
    return [texts[begin : begin + size] for begin in range(0, len(texts), size)]
