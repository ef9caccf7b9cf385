"""From results to the content of an answer, in the shape that the form of the request decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, cast

from service.api.error_responses import error_body
from service.api.schemas import FillMaskRequest, NextSentenceRequest, TaskRequest
from service.batching.submission import Entry, Skipped
from service.errors import HeadMissing, InvalidInput, ServiceError
from service.tasks import (
    FillMaskResult,
    JointFillResult,
    MaskPredictions,
    NextSentenceResult,
    Prediction,
    Result,
)

JsonObject: TypeAlias = dict[str, Any]
# The field of the engine's errors.
_TARGETS = "parameters.targets"

ResultT = TypeVar("ResultT", bound=Result)


def fill_mask_content(request: FillMaskRequest, answers: Sequence[Entry]) -> object:
    """A list of predictions for one mask, a list of such lists for several, a list of either for a list of texts.

    With the joint strategy a list of whole texts, however many masks they have.
    """
    answers = [_naming_targets_as(request, answer) for answer in answers]
    if request.wants_details:
        return _detailed(answers)
    contents = (
        [_joint_predictions(result) for result in results_of(request, answers, JointFillResult)]
        if request.is_joint
        else [_fill_mask_item(result) for result in results_of(request, answers, FillMaskResult)]
    )
    return contents if request.list_place else contents[0]


def next_sentence_content(request: NextSentenceRequest, answers: Sequence[Entry]) -> object:
    """One object for one pair, a list for a list; candidates best first."""
    results = results_of(request, answers, NextSentenceResult)
    if request.candidates is not None:
        ranked = [
            {"index": index, "text": text, "is_next": result.is_next, "truncated": result.truncated}
            for index, (text, result) in enumerate(zip(request.candidates, results, strict=True))
        ]
        return sorted(ranked, key=lambda candidate: cast(float, candidate["is_next"]), reverse=True)
    contents = [_next_sentence_item(result) for result in results]
    return contents if request.list_place else contents[0]


def _naming_targets_as(request: FillMaskRequest, answer: Entry) -> Entry:
    """A fault of a target at the place where the request has its targets: the engine knows only of `parameters`."""
    if not isinstance(answer, InvalidInput) or answer.field is None or not answer.field.startswith(_TARGETS):
        return answer
    _, place = request.option("targets")
    return InvalidInput(answer.message, field=place + answer.field.removeprefix(_TARGETS))


def results_of(request: TaskRequest, answers: Sequence[Entry], kind: type[ResultT]) -> list[ResultT]:
    """The results; the first fault is raised, with its place in the request."""
    results: list[ResultT] = []
    for index, answer in enumerate(answers):
        if isinstance(answer, Skipped):
            continue  # the fault that it was skipped for stands elsewhere in the list
        if isinstance(answer, ServiceError):
            place = request.place(index)
            raise answer.at(place) if place else answer
        assert isinstance(answer.result, kind)
        results.append(answer.result)
    assert len(results) == len(answers)
    return results


def _detailed(answers: Sequence[Entry]) -> JsonObject:
    items = []
    prompt_tokens = 0
    for answer in answers:
        if isinstance(answer, HeadMissing):
            raise answer
        if isinstance(answer, ServiceError):
            items.append(error_body(answer))
            continue
        result = answer.result
        assert isinstance(result, FillMaskResult | JointFillResult)
        prompt_tokens += result.tokens
        items.append(_detailed_item(result))
    return {"results": items, "usage": {"prompt_tokens": prompt_tokens}}


def _detailed_item(result: FillMaskResult | JointFillResult) -> JsonObject:
    if isinstance(result, JointFillResult):
        return {"sequences": _joint_predictions(result), "tokens": result.tokens, "truncated": result.truncated}
    masks = [{"position": mask.position, "predictions": _mask_predictions(mask)} for mask in result.masks]
    return {"masks": masks, "tokens": result.tokens, "truncated": result.truncated}


def _fill_mask_item(result: FillMaskResult) -> list[Any]:
    masks = [_mask_predictions(mask) for mask in result.masks]
    return masks[0] if len(masks) == 1 else masks


def _mask_predictions(mask: MaskPredictions) -> list[JsonObject]:
    return [_prediction(prediction) for prediction in mask.predictions]


def _joint_predictions(result: JointFillResult) -> list[JsonObject]:
    return [
        {
            "score": prediction.score,
            "tokens": prediction.token_ids,
            "token_strs": prediction.token_strs,
            "sequence": prediction.sequence,
        }
        for prediction in result.predictions
    ]


def _prediction(prediction: Prediction) -> JsonObject:
    content = {
        "score": prediction.score,
        "token": prediction.token,
        "token_str": prediction.token_str,
        "sequence": prediction.sequence,
    }
    return content if prediction.tokens is None else {**content, "tokens": prediction.tokens}


def _next_sentence_item(result: NextSentenceResult) -> JsonObject:
    return {
        "is_next": result.is_next,
        "not_next": result.not_next,
        "label": "is_next" if result.is_next >= result.not_next else "not_next",
        "logits": result.logits,
        "truncated": result.truncated,
    }
