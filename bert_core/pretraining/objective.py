"""What is learned: masked LM and next sentence, and to keep the sentence embeddings that a model had.

Axes: T packed tokens, M masked ones, N sequences, R rows that a head reads, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.heads import mean_of_tokens
from bert_core.model import BertForPreTraining, BertModel
from bert_core.packing import WantedRows
from bert_core.pretraining.batches import TrainingBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """Over a batch; scalars on the model's device, the losses float32.

    prediction_loss, correct_predictions: of the masked tokens; None without an MLM head.
    next_loss, correct_next: of the pairs; None without an NSP head.
    embedding_loss: 1 - cosine of each sequence's mean to the given one; None without any.
    """

    prediction_loss: Tensor | None = None
    correct_predictions: Tensor | None = None
    next_loss: Tensor | None = None
    correct_next: Tensor | None = None
    embedding_loss: Tensor | None = None


class Objective(nn.Module):
    """The losses of a model whose heads are there or not. Heads see only the rows that they read."""

    def __init__(self, model: BertForPreTraining) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: TrainingBatch, embeddings_ND: Tensor | None = None) -> Sums:
        """Sums over the batch's masked tokens and pairs.

        Args:
            batch: on the model's device.
            embeddings_ND: what the means of the sequences shall be like.
        """
        model = self.model
        packed = batch.masked
        averages = model.bert.pooler is not None and model.bert.pooler.averages
        if averages or embeddings_ND is not None:
            hidden_TD = model.bert.encode(packed)
            first_ND, masked_MD = hidden_TD[packed.first_rows_N], hidden_TD[batch.places_M]
            mean_ND = mean_of_tokens(hidden_TD, packed)
        else:
            first_ND, masked_MD = _wanted_states(model.bert, batch)
            mean_ND = None
        sums: dict[str, Tensor] = {}
        if model.mlm is not None:
            logits_MV = model.mlm(masked_MD).float()
            sums["prediction_loss"] = F.cross_entropy(logits_MV, batch.labels_M, reduction="sum")
            sums["correct_predictions"] = (logits_MV.argmax(1) == batch.labels_M).sum()
        if model.nsp is not None:
            assert model.bert.pooler is not None
            logits_N2 = model.nsp(model.bert.pooler(mean_ND if averages else first_ND)).float()
            sums["next_loss"] = F.cross_entropy(logits_N2, batch.next_N, reduction="sum")
            sums["correct_next"] = (logits_N2.argmax(1) == batch.next_N).sum()
        if embeddings_ND is not None:
            assert mean_ND is not None
            cosine_N = F.cosine_similarity(mean_ND.float(), embeddings_ND.float(), dim=1)
            sums["embedding_loss"] = (1 - cosine_N).sum()
        return Sums(**sums)


def _wanted_states(model: BertModel, batch: TrainingBatch) -> tuple[Tensor, Tensor]:
    """Last hidden states of each sequence's first token `[N, D]` and of the masked ones `[M, D]`, and no others."""
    rows_R, order_R = torch.cat([batch.masked.first_rows_N, batch.places_M]).sort()
    wanted = WantedRows(rows_R=rows_R, counts=[count + 1 for count in batch.counts])
    hidden_RD = model.encode(batch.masked, wanted=wanted)[order_R.argsort()]
    return hidden_RD[: batch.sequences], hidden_RD[batch.sequences :]


@torch.no_grad()
def sentence_embeddings(model: BertModel, batch: TrainingBatch) -> Tensor:
    """The mean of each sequence's states where nothing is masked, `[N, D]`."""
    return mean_of_tokens(model.encode(batch.clean), batch.clean)
