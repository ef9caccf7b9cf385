"""From results to the content of answers of the routes of Text Embeddings Inference (TEI)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

import numpy as np

from service.api.answer_bodies import JsonObject, results_of
from service.api.openai_schemas import EmbeddingsRequest
from service.api.tei_schemas import (
    DecodeRequest,
    EmbedAllRequest,
    EmbedRequest,
    EmbedSparseRequest,
    SimilarityRequest,
    TokenizeRequest,
)
from service.batching.policy import MAX_ANSWER_CHARACTERS
from service.batching.submission import Entry
from service.errors import PayloadTooLarge
from service.tasks import (
    DecodeResult,
    EmbedAllResult,
    EmbedResult,
    EmbedSparseResult,
    FloatVector,
    TokenizeResult,
)

# {"index":12345,"value":0.12345678},
SPARSE_VALUE_CHARACTERS = 36


def embed_content(request: EmbedRequest | EmbeddingsRequest, answers: Sequence[Entry]) -> Sequence[FloatVector | str]:
    """A list of vectors, also for one text."""
    vectors = [result.vector for result in results_of(request, answers, EmbedResult)]
    return [_base64(vector) for vector in vectors] if request.encoding_format == "base64" else vectors


def embed_all_content(request: EmbedAllRequest, answers: Sequence[Entry]) -> object:
    """A list of token vectors for each text, also for one text."""
    return [result.vectors for result in results_of(request, answers, EmbedAllResult)]


def embed_sparse_content(request: EmbedSparseRequest, answers: Sequence[Entry]) -> object:
    """A list of indices and values for each text, also for one text.

    Raises:
        PayloadTooLarge: the answer would be too long, which nobody knew before the pass.
    """
    results = results_of(request, answers, EmbedSparseResult)
    characters = SPARSE_VALUE_CHARACTERS * sum(len(result.values) for result in results)
    if characters > MAX_ANSWER_CHARACTERS:
        raise PayloadTooLarge(
            f"the answer would be about {characters} characters long, and the most is {MAX_ANSWER_CHARACTERS}; send "
            "fewer texts in one request",
            field="inputs",
        )
    return [_sparse_values(result) for result in results]


def similarity_content(request: SimilarityRequest, answers: Sequence[Entry]) -> object:
    """The cosine of the source sentence with each of the others, in their order."""
    source, *others = [result.vector for result in results_of(request, answers, EmbedResult)]
    # Vectors of length 1, but for rounding.
    return np.clip(np.stack(others) @ source, -1, 1)


def tokenize_content(request: TokenizeRequest, answers: Sequence[Entry]) -> object:
    """A list of tokens for each text, also for one text."""
    return [_tokens(result) for result in results_of(request, answers, TokenizeResult)]


def decode_content(request: DecodeRequest, answers: Sequence[Entry]) -> object:
    """A text for each list of ids, also for one list."""
    return [result.text for result in results_of(request, answers, DecodeResult)]


def _sparse_values(result: EmbedSparseResult) -> list[JsonObject]:
    # Numbers of numpy, which are written as short as float32 allows.
    pairs = zip(result.indices.tolist(), result.values, strict=True)
    return [{"index": index, "value": value} for index, value in pairs]


def _tokens(result: TokenizeResult) -> list[JsonObject]:
    tokens = [
        {"id": token, "text": result.text[start:stop], "special": False, "start": start, "stop": stop}
        for token, (start, stop) in zip(result.ids.tolist(), result.offsets.tolist(), strict=True)
    ]
    if result.special_tokens:
        for token, name in zip((tokens[0], tokens[-1]), result.special_tokens, strict=True):
            token.update(text=name, special=True, start=None, stop=None)
    return tokens


def _base64(vector: FloatVector) -> str:
    return b64encode(vector.astype("<f4", copy=False).tobytes()).decode("ascii")
