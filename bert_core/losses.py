"""The losses of BERT's two pre-training tasks, and the checks of their labels.

Axes: B rows and L columns of a padded call, T packed tokens, M rows that have logits, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.inputs import PaddedBatch, require_integers, require_tensor

IGNORED_LABEL = -100


def wanted_predictions(batch: PaddedBatch, prediction_mask: Tensor | None) -> Tensor | None:
    """Bool `[T]`: the packed tokens whose predictions are wanted; None is all."""
    if prediction_mask is None:
        return None
    if require_tensor("prediction_mask", prediction_mask).shape != batch.shape or prediction_mask.dtype != torch.bool:
        raise ValueError(f"prediction_mask: must be bool {list(batch.shape)}")
    wanted_T = prediction_mask.flatten()[batch.places_T]
    if wanted_T.sum() != prediction_mask.sum():
        raise ValueError("prediction_mask: a token that the attention mask drops has no prediction")
    return wanted_T


def labels_of(batch: PaddedBatch, labels: Tensor, *, wanted_T: Tensor | None) -> Tensor:
    """The labels of the tokens that have logits, `[M]`."""
    if require_tensor("labels", labels).shape != batch.shape:
        raise ValueError(f"labels: {list(labels.shape)} is not {list(batch.shape)}")
    require_integers("labels", labels)
    labels_M = labels.long().flatten()[batch.places_T]
    if wanted_T is not None:
        labels_M = labels_M[wanted_T]
    if (labels_M != IGNORED_LABEL).sum() != (labels != IGNORED_LABEL).sum():
        raise ValueError(f"labels: a token without logits must have the label {IGNORED_LABEL}")
    return labels_M


def prediction_loss(logits_MV: Tensor | None, *, labels: Tensor) -> Tensor:
    """Mean cross-entropy of the masked-LM head over the labels `[M]` that are not ignored, a scalar; 0 if all are."""
    if logits_MV is None:
        raise ValueError("labels: this model has no MLM head")
    vocabulary = logits_MV.shape[1]
    if not ((labels == IGNORED_LABEL) | ((labels >= 0) & (labels < vocabulary))).all():
        raise ValueError(f"labels: must be {IGNORED_LABEL} or from 0 to {vocabulary - 1}")
    loss_sum = F.cross_entropy(_at_least_float32(logits_MV), labels, ignore_index=IGNORED_LABEL, reduction="sum")
    # Where every label is ignored the mean would be 0/0, and one such batch would undo a whole training run.
    return loss_sum / (labels != IGNORED_LABEL).sum().clamp(min=1)


def next_sentence_loss(logits_B2: Tensor | None, *, labels_B: Tensor) -> Tensor:
    """Mean cross-entropy of the next-sentence head, a scalar; label 0 is "is next"."""
    if logits_B2 is None:
        raise ValueError("next_sentence_label: this model has no NSP head")
    require_integers("next_sentence_label", require_tensor("next_sentence_label", labels_B))
    if labels_B.shape != logits_B2.shape[:1] or not ((labels_B == 0) | (labels_B == 1)).all():
        raise ValueError(f"next_sentence_label: must be 0 (is next) or 1 (is not), [{logits_B2.shape[0]}]")
    return F.cross_entropy(_at_least_float32(logits_B2), labels_B.long())


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
