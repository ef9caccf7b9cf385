"""Sparse embeddings by the masked-LM head: SPLADE (Formal et al. 2021), its max pooling (SPLADE v2).

A text's weight for a piece of the vocabulary is log(1 + relu(logit)), of its tokens the greatest. All tokens count,
`[CLS]` and `[SEP]` too, as in Text Embeddings Inference and sentence-transformers.

Axes: X rows of all sequences, N sequences, D hidden, V vocabulary, U ids of the vocabulary that stand for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import torch
from torch import Tensor

from bert_core.heads import MaskedLMHead
from service.engine.encoding import EncodedTask
from service.engine.fill_mask import ROWS_AT_ONCE
from service.engine.results import NOT_FINITE
from service.errors import BackendFailure
from service.tasks import EmbedSparseResult, FloatVector


def vocabulary_weights(
    hidden_XD: Tensor, *, offsets_N1: Tensor, head: MaskedLMHead, vocab_size: int, unused_ids_U: Tensor
) -> Tensor:
    """float32 `[N, V]`, for the first `vocab_size` ids: the matrix may have more rows than the vocabulary has pieces.

    `offsets_N1` says where each sequence's rows begin and end.
    """
    sequences = len(offsets_N1) - 1
    numbers_N = torch.arange(sequences, device=hidden_XD.device)
    numbers_X = torch.repeat_interleave(numbers_N, offsets_N1.diff(), output_size=len(hidden_XD))
    # From zero up, which makes the greatest logit its relu. The logarithm keeps the order, so it comes last.
    greatest_NV = hidden_XD.new_zeros((sequences, vocab_size), dtype=torch.float32)
    for rows_MD, numbers_M in zip(hidden_XD.split(ROWS_AT_ONCE), numbers_X.split(ROWS_AT_ONCE), strict=True):
        logits_MV = head(rows_MD).float()[:, :vocab_size]
        greatest_NV.scatter_reduce_(0, numbers_M[:, None].expand_as(logits_MV), logits_MV, "amax")
    if len(unused_ids_U):
        greatest_NV.index_fill_(1, unused_ids_U, 0.0)
    return greatest_NV.log1p_()


def sparse_embeddings(
    tasks: SequenceOf[EncodedTask], weights_NV: FloatVector
) -> list[EmbedSparseResult | BackendFailure]:
    """Results of sparse-embedding tasks from their weights."""
    return [_sparse_embedding(task, weights_V) for task, weights_V in zip(tasks, weights_NV, strict=True)]


def _sparse_embedding(task: EncodedTask, weights_V: FloatVector) -> EmbedSparseResult | BackendFailure:
    if not np.isfinite(weights_V).all():
        return BackendFailure(NOT_FINITE)
    indices = np.flatnonzero(weights_V)
    return EmbedSparseResult(indices=indices, values=weights_V[indices], tokens=task.tokens, truncated=task.truncated)
