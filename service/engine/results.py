"""From what the heads make of each sequence to next-sentence and embedding results, on the host.

Axes: N sequences, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt

from service.engine.encoding import EncodedTask
from service.errors import BackendFailure
from service.tasks import Embed, EmbedAllResult, EmbedResult, FloatVector, NextSentenceResult

NOT_FINITE = "the model gave a value that is not finite for this item"

SMALLEST_NORM = 1e-12


def next_sentences(
    tasks: SequenceOf[EncodedTask], both_N22: npt.NDArray[np.float32]
) -> list[NextSentenceResult | BackendFailure]:
    """Results of next-sentence tasks from the logits and, second, the probabilities of each."""
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


def embeddings(tasks: SequenceOf[EncodedTask], vectors_ND: FloatVector) -> list[EmbedResult | BackendFailure]:
    """Results of embedding tasks from their pooled vectors."""
    return [_embedding(task, vector=vector) for task, vector in zip(tasks, vectors_ND, strict=True)]


def token_vectors(tasks: SequenceOf[EncodedTask], vectors_XD: FloatVector) -> list[EmbedAllResult | BackendFailure]:
    """Results of token-vector tasks from the rows of all their sequences, one after the other."""
    results: list[EmbedAllResult | BackendFailure] = []
    first = 0
    for task in tasks:
        vectors = vectors_XD[first : first + task.tokens]
        first += task.tokens
        if np.isfinite(vectors).all():
            results.append(EmbedAllResult(vectors=vectors, tokens=task.tokens, truncated=task.truncated))
        else:
            results.append(BackendFailure(NOT_FINITE))
    return results


def _embedding(task: EncodedTask, *, vector: FloatVector) -> EmbedResult | BackendFailure:
    assert isinstance(task.task, Embed)
    vector = vector[: task.task.dimensions]
    if not np.isfinite(vector).all():
        return BackendFailure(NOT_FINITE)
    if task.task.normalize:
        # A vector of zeros stays one, as in torch.nn.functional.normalize.
        vector = vector / np.float32(max(float(np.linalg.norm(vector)), SMALLEST_NORM))
    return EmbedResult(vector=vector, tokens=task.tokens, truncated=task.truncated)
