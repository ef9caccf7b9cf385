"""From the `[MASK]` rows of the last layer to predictions.

The softmax normaliser, the best candidates and the targets stay on the device; only ids and scores come back.

Axes: M `[MASK]` rows, D hidden, V vocabulary, K best candidates, C target ids, U ids that stand for nothing.
"""

from __future__ import annotations

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
from service.engine.targets import Target
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
    """On the host, for M rows: the best ids `[M, K]` and their log probabilities, and the targets' `[M, C]`."""

    ids: npt.NDArray[np.int32]
    log_probs: npt.NDArray[np.float32]
    target_log_probs: npt.NDArray[np.float32]

    def rows(self, part: slice) -> MaskScores:
        """Those of some rows."""
        return MaskScores(self.ids[part], self.log_probs[part], self.target_log_probs[part])

    @property
    def finite(self) -> bool:
        """Whether every score is a number."""
        return bool(np.isfinite(self.log_probs).all() and np.isfinite(self.target_log_probs).all())


@dataclass(frozen=True, slots=True)
class SizeGroup:
    """Targets of so many pieces: their numbers among all targets, and where their pieces are scored `[G, size]`."""

    size: int
    numbers: list[int]
    columns: npt.NDArray[np.int64]


def fill_masks(
    tasks: SequenceOf[EncodedTask], scores: MaskScores, *, target_ids: SequenceOf[int], tokenizer: BertTokenizer
) -> list[FillMaskResult | NextMaskResult | BackendFailure]:
    """Results of fill-mask tasks and of joint steps from the scores of all their rows; `target_ids` are those of C."""
    columns = {token: column for column, token in enumerate(target_ids)}
    groups = {key: _by_size(targets, columns=columns) for key, targets in _distinct_targets(tasks).items()}
    results: list[FillMaskResult | NextMaskResult | BackendFailure] = []
    first = 0
    for task in tasks:
        last = first + sum(len(sequence.wanted or ()) for sequence in task.sequences)
        own = scores.rows(slice(first, last))
        first = last
        if not own.finite:
            results.append(BackendFailure(NOT_FINITE))
        elif isinstance(task.task, FillNextMask):
            results.append(_next_mask(task, own, tokenizer=tokenizer))
        elif task.targets is None:
            results.append(_vocabulary_result(task, own, tokenizer=tokenizer))
        else:
            results.append(
                _target_result(task, own, groups=groups[id(task.targets)], prefix=tokenizer.continuation_prefix)
            )
    return results


def ids_of_targets(tasks: SequenceOf[EncodedTask]) -> list[int]:
    """The ids of all pieces of all targets, each once, ascending."""
    return sorted(
        {token for targets in _distinct_targets(tasks).values() for target in targets for token in target.ids}
    )


def _distinct_targets(tasks: SequenceOf[EncodedTask]) -> dict[int, tuple[Target, ...]]:
    """By identity: the texts of a request share theirs."""
    return {id(task.targets): task.targets for task in tasks if task.targets is not None}


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
    hidden_MD: Tensor, *, head: MaskedLMHead, vocab_size: int, unused_ids_U: Tensor, top_k: int, target_ids_C: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What `MaskScores` holds, on the device: int32 `[M, K]`, float32 `[M, K]`, float32 `[M, C]`.

    Candidates are the first `vocab_size` ids except the unused ones: the matrix may have more rows than the vocabulary
    has pieces, and these count in the softmax but are never an answer.
    """
    found = []
    for rows_MD in hidden_MD.split(ROWS_AT_ONCE):
        logits_MV = head(rows_MD).float()
        normaliser_M1 = logits_MV.logsumexp(1, keepdim=True)
        targets_MC = logits_MV.index_select(1, target_ids_C) - normaliser_M1
        candidates_MV = logits_MV[:, :vocab_size]
        if len(unused_ids_U):
            candidates_MV.index_fill_(1, unused_ids_U, -torch.inf)
        best = candidates_MV.topk(top_k, dim=1)
        found.append((best.indices.int(), best.values - normaliser_M1, targets_MC))
    ids_MK, log_probs_MK, targets_MC = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
    return ids_MK, log_probs_MK, targets_MC


def _next_mask(task: EncodedTask, scores: MaskScores, *, tokenizer: BertTokenizer) -> NextMaskResult:
    """The candidates at the mask whose best one is the most probable; of equals, at the leftmost."""
    assert isinstance(task.task, FillNextMask)
    top_k = _top_k(task, tokenizer=tokenizer)
    row = int(scores.log_probs[:, 0].argmax())
    masks = len(task.mask_spans)
    unfilled = [mask for mask, token in enumerate(task.task.filled or (None,) * masks) if token is None]
    return NextMaskResult(
        mask=unfilled[row],
        masks=masks,
        candidates=tuple(zip(scores.ids[row, :top_k].tolist(), scores.log_probs[row, :top_k].tolist(), strict=True)),
        tokens=task.tokens,
        truncated=task.truncated,
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


def _by_size(targets: tuple[Target, ...], *, columns: dict[int, int]) -> list[SizeGroup]:
    numbers: dict[int, list[int]] = {}
    for number, target in enumerate(targets):
        numbers.setdefault(len(target.ids), []).append(number)
    return [
        SizeGroup(size, members, np.array([[columns[token] for token in targets[number].ids] for number in members]))
        for size, members in numbers.items()
    ]


def _target_result(task: EncodedTask, scores: MaskScores, *, groups: list[SizeGroup], prefix: str) -> FillMaskResult:
    assert isinstance(task.task, FillMask)
    assert task.targets is not None
    # Where the rows of the sequence with so many masks begin: the text itself, then one for each size of target.
    first_row: dict[int, int] = {}
    row = 0
    for sequence in task.sequences:
        assert sequence.wanted is not None
        first_row[len(sequence.wanted)] = row
        row += len(sequence.wanted)
    log_probs_MC = np.empty((len(task.mask_spans), len(task.targets)), dtype=np.float32)
    for group in groups:
        if group.size == 1:
            log_probs_MC[:, group.numbers] = scores.target_log_probs[: len(task.mask_spans), group.columns[:, 0]]
        else:
            rows = first_row[group.size] + np.arange(group.size)
            log_probs_MC[0, group.numbers] = scores.target_log_probs[rows, group.columns].mean(1)
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
