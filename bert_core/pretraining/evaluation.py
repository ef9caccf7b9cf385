"""How well a model does the two tasks on held-out text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from bert_core.model import BertForPreTraining
from bert_core.pretraining.batches import TrainingBatch
from bert_core.pretraining.objective import Objective


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Means over all masked tokens and all pairs; None where a head is missing.

    masked: tokens that were predicted. pairs: of sentences.
    mlm_loss, nsp_loss: cross-entropies in nats.
    """

    masked: int
    pairs: int
    mlm_loss: float | None
    mlm_accuracy: float | None
    nsp_loss: float | None
    nsp_accuracy: float | None

    @property
    def mlm_perplexity(self) -> float | None:
        """Of the masked tokens."""
        return None if self.mlm_loss is None else math.exp(min(self.mlm_loss, 700.0))


@torch.no_grad()
def evaluate(model: BertForPreTraining, batches: Iterable[TrainingBatch]) -> Evaluation:
    """Without dropout, in the model's dtype (or the autocast that is on), on its device.

    Raises:
        ValueError: there is no batch.
    """
    was_training = model.training
    objective = Objective(model.eval())
    device = model.bert.embeddings.norm.weight.device
    masked = pairs = 0
    totals = {"prediction_loss": 0.0, "correct_predictions": 0.0, "next_loss": 0.0, "correct_next": 0.0}
    try:
        for batch in batches:
            sums = objective(batch.to(device))
            masked += len(batch.labels_M)
            pairs += batch.sequences
            for name in totals:
                value = getattr(sums, name)
                totals[name] += 0.0 if value is None else value.item()
    finally:
        model.train(was_training)
    if not pairs:
        raise ValueError("there is no text to evaluate on")
    has_mlm, has_nsp = model.heads.mlm, model.heads.nsp
    return Evaluation(
        masked=masked,
        pairs=pairs,
        mlm_loss=totals["prediction_loss"] / masked if has_mlm else None,
        mlm_accuracy=totals["correct_predictions"] / masked if has_mlm else None,
        nsp_loss=totals["next_loss"] / pairs if has_nsp else None,
        nsp_accuracy=totals["correct_next"] / pairs if has_nsp else None,
    )
