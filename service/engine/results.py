"""From what the pooling makes of each sequence to next-sentence and embedding results.

Axes: R wanted rows, N sequences, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import torch
from torch import Tensor

from bert_core.heads import NextSentenceHead, reduce_segments
from bert_core.packing import offsets_of
from service.engine.encoding import EncodedTask
from service.errors import BackendFailure
from service.tasks import Embed, EmbedResult, FloatVector, NextSentenceResult

NOT_FINITE = "the model gave a value that is not finite for this item"

SMALLEST_NORM = 1e-12


def reduce_rows(hidden_RD: Tensor, rows: SequenceOf[slice], *, how: str) -> Tensor:
    """`[N, D]`, in the dtype of the rows: the `mean` or `max` over each sequence's rows."""
    offsets_N1 = offsets_of([part.stop - part.start for part in rows], device=hidden_RD.device)
    return reduce_segments(torch.cat([hidden_RD[part] for part in rows]), offsets_N1=offsets_N1, how=how)


def next_sentences(
    tasks: SequenceOf[EncodedTask], pooled_ND: Tensor, *, head: NextSentenceHead
) -> list[NextSentenceResult | BackendFailure]:
    """Results of next-sentence tasks from the pooler's output."""
    logits_N2 = head(pooled_ND).float()
    both_N22 = torch.stack((logits_N2, logits_N2.softmax(1)), 1).cpu().numpy()
    results: list[NextSentenceResult | BackendFailure] = []
    for task, values in zip(tasks, both_N22, strict=True):
        if not np.isfinite(values).all():
            results.append(BackendFailure(NOT_FINITE))
            continue
        (first, second), (is_next, not_next) = values.tolist()
        results.append(
            NextSentenceResult(
                is_next=is_next,
                not_next=not_next,
                logits=(first, second),
                tokens=task.tokens,
                truncated=task.truncated,
            )
        )
    return results


def embeddings(tasks: SequenceOf[EncodedTask], vectors_ND: Tensor) -> list[EmbedResult | BackendFailure]:
    """Results of embedding tasks from their pooled vectors."""
    return [
        _embedding(task, vector=vector) for task, vector in zip(tasks, vectors_ND.float().cpu().numpy(), strict=True)
    ]


def _embedding(task: EncodedTask, *, vector: FloatVector) -> EmbedResult | BackendFailure:
    assert isinstance(task.task, Embed)
    vector = vector[: task.task.dimensions]
    if not np.isfinite(vector).all():
        return BackendFailure(NOT_FINITE)
    if task.task.normalize:
        # A vector of zeros stays one, as in torch.nn.functional.normalize.
        vector = vector / np.float32(max(float(np.linalg.norm(vector)), SMALLEST_NORM))
    return EmbedResult(vector=vector, tokens=task.tokens, truncated=task.truncated)
