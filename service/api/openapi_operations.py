"""The routes as the documentation presents them: groups, one line each, examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from service.api.answer_schemas import (
    DecodeAnswer,
    EmbedAllAnswer,
    EmbedAnswer,
    EmbedSparseAnswer,
    ErrorAnswer,
    FillMaskAnswer,
    HealthAnswer,
    InfoAnswer,
    NextSentenceAnswer,
    SimilarityAnswer,
    TokenizeAnswer,
)
from service.api.openai_schemas import (
    EmbeddingsAnswer,
    EmbeddingsRequest,
    ModelAnswer,
    ModelsAnswer,
    OpenAIErrorAnswer,
)
from service.api.openapi_examples import (
    ALIVE,
    EMBEDDINGS_EXAMPLES,
    FILL_MASK_EXAMPLES,
    INFO,
    METRICS,
    MODEL,
    MODELS,
    NEXT_SENTENCE_EXAMPLES,
    READY,
    Example,
)
from service.api.schemas import FillMaskRequest, NextSentenceRequest
from service.api.tei_examples import (
    DECODE_EXAMPLES,
    EMBED_ALL_EXAMPLES,
    EMBED_EXAMPLES,
    EMBED_SPARSE_EXAMPLES,
    SIMILARITY_EXAMPLES,
    TOKENIZE_EXAMPLES,
)
from service.api.tei_schemas import (
    DecodeRequest,
    EmbedAllRequest,
    EmbedRequest,
    EmbedSparseRequest,
    SimilarityRequest,
    TokenizeRequest,
)
from service.errors import HeadMissing, ServiceError

INTRODUCTION = """\
BERT behind one port. `/fill-mask` predicts what stands at each `[MASK]`, `/next-sentence` tells whether a text follows
another, `/embed` turns texts into vectors; further routes are those of Text Embeddings Inference (TEI).

- Bodies are JSON (`content-type: application/json`). `inputs` may be one item or a list; a list is answered by a list.
- Texts over the model's limit (`max_input_length` of `/info`) are refused by `/fill-mask` and `/next-sentence` unless
  `truncate` is true, and cut by `/embed` unless it is false. The header `x-truncated` counts those that were cut.
- Every failure is `{"error", "error_type"}`; `error` names the field and the rule, and never repeats the text sent.
  Under `/v1` statuses and bodies are OpenAI's.
- The numbers of the examples are those of the checkpoint that comes with the service, rounded.
"""

TASKS = "Fill-mask and next sentence"
EMBEDDINGS = "Embeddings"
OPENAI = "OpenAI"
OPERATING = "Operations"

TAGS = {
    TASKS: "What BERT was trained for. Unknown fields are refused.",
    EMBEDDINGS: "In the form of Text Embeddings Inference (TEI), so that its clients work. Unknown fields are ignored.",
    OPENAI: "In the form of OpenAI's API, so that its SDK works. Unknown fields are ignored.",
    OPERATING: "Health, facts and metrics.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What an answer can be taken for next, as a Link Object of OpenAPI.

    path: of the route to ask.
    parameters, body: of the request there, with runtime expressions for what the answer holds. In a body they stand
        within its fields, which schemathesis evaluates; the specification speaks of whole bodies alone.
    """

    path: str
    description: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One documented route.

    answer: None for plain text.
    examples: of a route that takes a request.
    sample: an answer of one that takes none.
    unready: whether it answers 503 while the model is not ready.
    error: what failures look like.
    path_parameters: their names in the path, each with an example.
    never: failures that cannot come of it.
    links: by name.
    """

    path: str
    tag: str
    summary: str
    answer: type[BaseModel] | None
    request: type[BaseModel] | None = None
    examples: Mapping[str, Example] = field(default_factory=dict)
    sample: object = None
    unready: bool = False
    error: type[BaseModel] = ErrorAnswer
    path_parameters: Mapping[str, str] = field(default_factory=dict)
    never: tuple[type[ServiceError], ...] = ()
    links: Mapping[str, Link] = field(default_factory=dict)


OPERATIONS = (
    Operation(
        path="/fill-mask",
        tag=TASKS,
        summary="Predict what stands at each [MASK].",
        request=FillMaskRequest,
        answer=FillMaskAnswer,
        examples=FILL_MASK_EXAMPLES,
        links={
            "vector": Link(
                path="/embed",
                description="The vector of the text with the best word in it.",
                body={"inputs": "$response.body#/0/sequence"},
            )
        },
    ),
    Operation(
        path="/next-sentence",
        tag=TASKS,
        summary="Tell whether a text follows another, or rank candidates.",
        request=NextSentenceRequest,
        answer=NextSentenceAnswer,
        examples=NEXT_SENTENCE_EXAMPLES,
    ),
    Operation(
        path="/embed",
        tag=EMBEDDINGS,
        summary="Turn texts into vectors.",
        request=EmbedRequest,
        answer=EmbedAnswer,
        examples=EMBED_EXAMPLES,
    ),
    Operation(
        path="/embed_all",
        tag=EMBEDDINGS,
        summary="Turn texts into a vector for each token.",
        request=EmbedAllRequest,
        answer=EmbedAllAnswer,
        examples=EMBED_ALL_EXAMPLES,
        never=(HeadMissing,),
    ),
    Operation(
        path="/embed_sparse",
        tag=EMBEDDINGS,
        summary="Turn texts into weights of the vocabulary's pieces (SPLADE).",
        request=EmbedSparseRequest,
        answer=EmbedSparseAnswer,
        examples=EMBED_SPARSE_EXAMPLES,
    ),
    Operation(
        path="/similarity",
        tag=EMBEDDINGS,
        summary="Compare a text with others by their vectors.",
        request=SimilarityRequest,
        answer=SimilarityAnswer,
        examples=SIMILARITY_EXAMPLES,
        never=(HeadMissing,),
    ),
    Operation(
        path="/tokenize",
        tag=EMBEDDINGS,
        summary="Split texts into tokens.",
        request=TokenizeRequest,
        answer=TokenizeAnswer,
        examples=TOKENIZE_EXAMPLES,
        never=(HeadMissing,),
        links={
            "text": Link(
                path="/decode",
                description="The first token of the first text as text again.",
                body={"ids": ["$response.body#/0/0/id"]},
            )
        },
    ),
    Operation(
        path="/decode",
        tag=EMBEDDINGS,
        summary="Turn token ids into texts.",
        request=DecodeRequest,
        answer=DecodeAnswer,
        examples=DECODE_EXAMPLES,
        never=(HeadMissing,),
    ),
    Operation(
        path="/",
        tag=EMBEDDINGS,
        summary="The same as /embed.",
        request=EmbedRequest,
        answer=EmbedAnswer,
        examples=EMBED_EXAMPLES,
    ),
    Operation(
        path="/v1/embeddings",
        tag=OPENAI,
        summary="Turn texts into vectors.",
        request=EmbeddingsRequest,
        answer=EmbeddingsAnswer,
        examples=EMBEDDINGS_EXAMPLES,
        error=OpenAIErrorAnswer,
    ),
    Operation(
        path="/v1/models",
        tag=OPENAI,
        summary="The model that is served, as a list.",
        answer=ModelsAnswer,
        sample=MODELS,
        unready=True,
        error=OpenAIErrorAnswer,
        links={
            "model": Link(
                path="/v1/models/{model_id}",
                description="The model by its name.",
                parameters={"model_id": "$response.body#/data/0/id"},
            ),
            "vectors": Link(
                path="/v1/embeddings",
                description="Vectors by the model of this name.",
                body={"model": "$response.body#/data/0/id", "input": "a cat"},
            ),
        },
    ),
    Operation(
        path="/v1/models/{model_id}",
        tag=OPENAI,
        summary="The model that is served, if this is its name.",
        answer=ModelAnswer,
        sample=MODEL,
        unready=True,
        error=OpenAIErrorAnswer,
        path_parameters={"model_id": "weights/minilm-l6-bert-en"},
    ),
    Operation(
        path="/health",
        tag=OPERATING,
        summary="The same as /health/ready.",
        answer=HealthAnswer,
        sample=READY,
        unready=True,
    ),
    Operation(
        path="/health/ready",
        tag=OPERATING,
        summary="Should requests be sent here?",
        answer=HealthAnswer,
        sample=READY,
        unready=True,
    ),
    Operation(
        path="/health/live", tag=OPERATING, summary="Does the process answer?", answer=HealthAnswer, sample=ALIVE
    ),
    Operation(
        path="/info",
        tag=OPERATING,
        summary="The model, the limits and the versions.",
        answer=InfoAnswer,
        sample=INFO,
        unready=True,
    ),
    Operation(
        path="/metrics",
        tag=OPERATING,
        summary="Metrics in the Prometheus text format.",
        answer=None,
        sample=METRICS,
    ),
)
