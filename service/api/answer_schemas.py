"""The shapes of answers, for the documentation alone: answers are written without being checked again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, RootModel


class ErrorAnswer(BaseModel):
    """Every failure has this body."""

    error: str
    error_type: str


class PredictionAnswer(BaseModel):
    """One candidate for one mask; `tokens` only with a target of several pieces, whose `token` is null."""

    score: float
    token: int | None
    token_str: str
    sequence: str
    tokens: list[int] | None = None


class MaskAnswer(BaseModel):
    position: int
    predictions: list[PredictionAnswer]


class DetailedItemAnswer(BaseModel):
    masks: list[MaskAnswer]
    tokens: int
    truncated: bool


class UsageAnswer(BaseModel):
    prompt_tokens: int


class DetailedAnswer(BaseModel):
    """With `details: true`: one result or error per text."""

    results: list[DetailedItemAnswer | ErrorAnswer]
    usage: UsageAnswer


class FillMaskAnswer(
    RootModel[
        list[PredictionAnswer] | list[list[PredictionAnswer]] | list[list[list[PredictionAnswer]]] | DetailedAnswer
    ]
):
    """Predictions for one mask; a list of those for several masks; a list of either for a list of texts."""


class PairAnswer(BaseModel):
    """Index 0 of the logits is "is next"."""

    is_next: float
    not_next: float
    label: Literal["is_next", "not_next"]
    logits: tuple[float, float]
    truncated: bool


class CandidateAnswer(BaseModel):
    index: int
    text: str
    is_next: float
    truncated: bool


class NextSentenceAnswer(RootModel[PairAnswer | list[PairAnswer] | list[CandidateAnswer]]):
    """One object for one pair, a list for a list; candidates best first."""


class EmbedAnswer(RootModel[list[list[float]] | list[str]]):
    """One vector per text, or its little-endian float32 bytes in base64."""


class HealthAnswer(BaseModel):
    status: Literal["alive", "ready"]


class InfoAnswer(BaseModel):
    """The model, the limits and the versions."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, dict[str, str]]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
    capabilities: dict[str, bool]
    heads_missing: list[Literal["pooler", "mlm", "nsp"]]
    device: str
    dtype: str
    pooling: str
    revision: str | None
    max_embed_length: int
    max_top_k: int
    hidden_size: int
    vocab_size: int
    parameters: int
    mask_token: str
    least_embedding_cosine: float
    least_top1_agreement: float
    versions: dict[str, Any]
