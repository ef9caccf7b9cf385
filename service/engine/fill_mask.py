"""From the `[MASK]` rows of the last layer to predictions.

The softmax normaliser, the best candidates and the targets stay on the device; only ids and scores come back.

Axes: M `[MASK]` rows, D hidden, V vocabulary, K best candidates, C targets of a text, E scores of targets, U ids that
stand for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bert_core import BertTokenizer
from bert_core.heads import MaskedLMHead
from service.engine.encoding import EncodedTask
from service.engine.mask_text import fill
from service.engine.results import NOT_FINITE
from service.engine.target_places import TargetPlaces
from service.errors import BackendFailure
from service.tasks import (
    DEFAULT_TOP_K,
    FillMask,
    FillMaskResult,
    FillNextMask,
    MaskPredictions,
    NextMaskResult,
    Prediction,
)

# Logits of this many rows exist at once: 512 x 30,522 in float32 are 62 MB.
ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class MaskScores:
    """On the host, for M rows: the best ids `[M, K]` and their log probabilities, and those of the targets `[E]`."""

    ids: npt.NDArray[np.int32]
    log_probs: npt.NDArray[np.float32]
    target_log_probs: npt.NDArray[np.float32]

    @property
    def finite(self) -> bool:
        """Whether every score is a number."""
        return bool(np.isfinite(self.log_probs).all() and np.isfinite(self.target_log_probs).all())


def fill_masks(
    tasks: SequenceOf[EncodedTask], scores: MaskScores, *, places: TargetPlaces, tokenizer: BertTokenizer
) -> list[FillMaskResult | NextMaskResult | BackendFailure]:
    """Results of fill-mask tasks and of joint steps from the scores of all their rows, and of all their targets."""
    results: list[FillMaskResult | NextMaskResult | BackendFailure] = []
    for task, own in zip(tasks, _own_scores(tasks, scores, places=places), strict=True):
        if not own.finite:
            results.append(BackendFailure(NOT_FINITE))
        elif isinstance(task.task, FillNextMask):
            results.append(_next_mask(task, own, tokenizer=tokenizer))
        elif task.targets is None:
            results.append(_vocabulary_result(task, own, tokenizer=tokenizer))
        else:
            log_probs_MC = places.log_probs(task, own.target_log_probs)
            results.append(_target_result(task, log_probs_MC, prefix=tokenizer.continuation_prefix))
    return results


def _own_scores(tasks: SequenceOf[EncodedTask], scores: MaskScores, *, places: TargetPlaces) -> Iterator[MaskScores]:
    """Those of each task."""
    row = entry = 0
    for task in tasks:
        rows = slice(row, row + sum(len(sequence.wanted or ()) for sequence in task.sequences))
        entries = slice(entry, entry + places.count(task))
        yield MaskScores(scores.ids[rows], scores.log_probs[rows], scores.target_log_probs[entries])
        row, entry = rows.stop, entries.stop


def most_candidates(tasks: SequenceOf[EncodedTask], *, tokenizer: BertTokenizer) -> int:
    """K that serves all of these fill-mask tasks."""
    return max(_top_k(task, tokenizer=tokenizer) for task in tasks)


def _top_k(task: EncodedTask, *, tokenizer: BertTokenizer) -> int:
    """Candidates to take from the vocabulary; none where there are targets."""
    assert isinstance(task.task, FillMask | FillNextMask)
    if task.targets is not None:
        return 0
    return min(task.task.top_k or DEFAULT_TOP_K, tokenizer.vocab_size - len(tokenizer.unused_ids))


def score_masks(
    hidden_MD: Tensor,
    *,
    head: MaskedLMHead,
    vocab_size: int,
    unused_ids_U: Tensor,
    top_k: int,
    target_rows_E: Tensor,
    target_ids_E: Tensor,
    places: TargetPlaces,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `MaskScores` holds, on the device: int32 `[M, K]`, float32 `[M, K]`, float32 `[E]`.

    Candidates are the first `vocab_size` ids except the unused ones: the matrix may have more rows than the vocabulary
    has pieces, and these count in the softmax but are never an answer.

    Args:
        target_rows_E, target_ids_E: those of `places`, on the device.
    """
    found = []
    sizes = places.counts(rows=len(hidden_MD), rows_at_once=ROWS_AT_ONCE)
    parts = zip(hidden_MD.split(ROWS_AT_ONCE), target_rows_E.split(sizes), target_ids_E.split(sizes), strict=True)
    for part, (rows_MD, rows_of_pass_E, ids_E) in enumerate(parts):
        logits_MV = head(rows_MD).float()
        normaliser_M1 = logits_MV.logsumexp(1, keepdim=True)
        rows_E = rows_of_pass_E - part * ROWS_AT_ONCE
        targets_E = logits_MV[rows_E, ids_E] - normaliser_M1[rows_E, 0]
        candidates_MV = logits_MV[:, :vocab_size]
        if len(unused_ids_U):
            candidates_MV.index_fill_(1, unused_ids_U, -torch.inf)
        best = candidates_MV.topk(top_k, dim=1)
        found.append((best.indices.int(), best.values - normaliser_M1, targets_E))
    ids_MK, log_probs_MK, targets_E = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
    return ids_MK, log_probs_MK, targets_E


def _next_mask(task: EncodedTask, scores: MaskScores, *, tokenizer: BertTokenizer) -> NextMaskResult:
    """The candidates at the mask whose best one is the most probable; of equals, at the leftmost."""
    assert isinstance(task.task, FillNextMask)
    top_k = _top_k(task, tokenizer=tokenizer)
    row = int(scores.log_probs[:, 0].argmax())
    masks = len(task.mask_spans)
    unfilled = [mask for mask, token in enumerate(task.task.filling(masks=masks)) if token is None]
    return NextMaskResult(
        mask=unfilled[row],
        masks=masks,
        candidates=tuple(zip(scores.ids[row, :top_k].tolist(), scores.log_probs[row, :top_k].tolist(), strict=True)),
        tokens=task.tokens,
        truncated=task.truncated,
        encoding=task.encoding,
    )


def _vocabulary_result(task: EncodedTask, scores: MaskScores, *, tokenizer: BertTokenizer) -> FillMaskResult:
    top_k, prefix = _top_k(task, tokenizer=tokenizer), tokenizer.continuation_prefix
    ids, probabilities = scores.ids[:, :top_k].tolist(), np.exp(scores.log_probs[:, :top_k]).tolist()
    predictions = []
    for row, span in enumerate(task.mask_spans):
        pieces = [tokenizer.id_to_token(token) or "" for token in ids[row]]
        predictions.append(
            tuple(
                Prediction(score=score, token=token, token_str=piece, sequence=_filled(task, span, piece, prefix))
                for token, score, piece in zip(ids[row], probabilities[row], pieces, strict=True)
            )
        )
    return _result(task, predictions)


def _target_result(task: EncodedTask, log_probs_MC: npt.NDArray[np.float32], *, prefix: str) -> FillMaskResult:
    assert isinstance(task.task, FillMask)
    assert task.targets is not None
    best_MK = np.argsort(-log_probs_MC, axis=1, kind="stable")[:, : task.task.top_k]
    probabilities_MK = np.exp(np.take_along_axis(log_probs_MC, best_MK, axis=1)).tolist()
    predictions = []
    for span, best, probabilities in zip(task.mask_spans, best_MK.tolist(), probabilities_MK, strict=True):
        targets = [task.targets[number] for number in best]
        predictions.append(
            tuple(
                Prediction(
                    score=score,
                    token=target.ids[0] if len(target.ids) == 1 else None,
                    token_str=target.text,
                    sequence=_filled(task, span, target.text, prefix),
                    tokens=None if len(target.ids) == 1 else target.ids,
                )
                for target, score in zip(targets, probabilities, strict=True)
            )
        )
    return _result(task, predictions)


def _filled(task: EncodedTask, span: tuple[int, int], piece: str, prefix: str) -> str:
    assert isinstance(task.task, FillMask)
    return fill(task.task.text, span=span, piece=piece, prefix=prefix)


def _result(task: EncodedTask, predictions: list[tuple[Prediction, ...]]) -> FillMaskResult:
    positions = task.sequences[0].wanted
    assert positions is not None
    return FillMaskResult(
        masks=tuple(
            MaskPredictions(position=position, predictions=best)
            for position, best in zip(positions, predictions, strict=True)
        ),
        tokens=task.tokens,
        truncated=task.truncated,
    )
