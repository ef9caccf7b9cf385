"""Filling all masks of a text jointly: a beam search, one pass a step.

Each step fills one more mask of each hypothesis, the one that the model is most certain of given the masks that the
hypothesis has filled, with each of its best candidates; of all that come of it, the `top_k` most probable are kept. A
hypothesis is as probable as the product of its candidates' probabilities, each given those before.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from service.batching.submission import Entry, Rounds
from service.errors import ServiceError
from service.tasks import (
    Answer,
    FilledText,
    FillNextMask,
    JointFillResult,
    JointPrediction,
    NextMaskResult,
    PassRecord,
    Timing,
)


def fill_jointly(tasks: Sequence[FillNextMask]) -> Rounds:
    """The rounds of a request with these texts, of which none is filled yet; each comes to a `JointFillResult`."""
    searches = [_Search(task) for task in tasks]
    while running := [search for search in searches if search.outcome is None]:
        entries = iter((yield [task for search in running for task in search.tasks()]))
        for search in running:
            search.take([next(entries) for _ in search.tasks()])
    return [search.outcome for search in searches if search.outcome is not None]


class _Hypothesis(NamedTuple):
    log_probability: float
    filled: tuple[int | None, ...]


class _Search:
    """The search for one text. `outcome` is there when it has ended."""

    def __init__(self, task: FillNextMask) -> None:
        self._task = task
        self._beam = [_Hypothesis(0.0, ())]
        self._timing = Timing()
        self._compute_tokens = 0
        self._passes: dict[PassRecord, None] = {}
        self.outcome: Entry | None = None

    def tasks(self) -> list[FillNextMask]:
        """One for each hypothesis."""
        return [replace(self._task, filled=hypothesis.filled) for hypothesis in self._beam]

    def take(self, entries: Sequence[Entry]) -> None:
        """What the tasks came to."""
        answers = []
        for entry in entries:
            if isinstance(entry, ServiceError):
                self.outcome = entry
                return
            answers.append(entry)
        self._timing += Timing.slowest(answer.timing for answer in answers)
        self._compute_tokens += sum(answer.compute_tokens for answer in answers)
        self._passes.update(dict.fromkeys(each for answer in answers for each in answer.passes))
        results = [answer.result for answer in answers]
        texts = [result for result in results if isinstance(result, FilledText)]
        if texts:
            self.outcome = Answer(
                result=self._result(texts),
                timing=self._timing,
                compute_tokens=self._compute_tokens,
                passes=tuple(self._passes),
            )
            return
        extended = (
            longer
            for hypothesis, result in zip(self._beam, results, strict=True)
            for longer in _extended(hypothesis, result)
        )
        self._beam = heapq.nlargest(self._task.top_k, extended, key=lambda hypothesis: hypothesis.log_probability)
        if isinstance(results[0], NextMaskResult):
            self._task = replace(self._task, encoding=results[0].encoding)

    def _result(self, texts: Sequence[FilledText]) -> JointFillResult:
        predictions = tuple(
            JointPrediction(
                score=math.exp(hypothesis.log_probability),
                token_ids=tuple(token for token in hypothesis.filled if token is not None),
                token_strs=text.token_strs,
                sequence=text.sequence,
            )
            for hypothesis, text in zip(self._beam, texts, strict=True)
        )
        return JointFillResult(predictions=predictions, tokens=texts[0].tokens, truncated=texts[0].truncated)


def _extended(hypothesis: _Hypothesis, result: object) -> Iterator[_Hypothesis]:
    assert isinstance(result, NextMaskResult)
    filled = list(hypothesis.filled or [None] * result.masks)
    for token, log_probability in result.candidates:
        filled[result.mask] = token
        yield _Hypothesis(hypothesis.log_probability + log_probability, tuple(filled))
