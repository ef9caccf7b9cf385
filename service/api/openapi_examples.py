"""Examples for the documentation: requests with the shipped checkpoint's answers to them, rounded, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TEA = {"score": 0.192, "token": 5572, "token_str": "tea", "sequence": "She drank a cup of tea."}
COFFEE = {"score": 0.273, "token": 4157, "token_str": "coffee", "sequence": "She drank a cup of coffee."}
LOCK = "He put the key in the lock."
DOOR = "The door would not open."
INFLATION = "Inflation rose to four percent."
FOLLOWS = {"is_next": 0.855, "not_next": 0.145, "label": "is_next", "logits": [0.882, -0.89], "truncated": False}
UNRELATED = {"is_next": 0.268, "not_next": 0.732, "label": "not_next", "logits": [-0.51, 0.495], "truncated": False}
CAT = [0.81, 0.0483, -0.118, 0.572]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request and its answer; the summary names both in a list.

    abridged: of each list of the answer only the first items are shown.
    """

    summary: str
    request: Mapping[str, Any]
    answer: object
    abridged: bool = False


def _embeddings(*embeddings: object, tokens: int) -> dict[str, object]:
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": embedding}
            for index, embedding in enumerate(embeddings)
        ],
        "model": "weights/minilm-l6-bert-en",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


FILL_MASK_EXAMPLES: Mapping[str, Example] = {
    "one_mask": Example(
        summary="One text with one mask",
        request={"inputs": "She drank a cup of [MASK].", "top_k": 2},
        answer=[COFFEE, TEA],
    ),
    "two_masks": Example(
        summary="One text with two masks: a list for each",
        request={"inputs": "She [MASK] the [MASK].", "top_k": 1},
        answer=[
            [{"score": 0.0898, "token": 2001, "token_str": "was", "sequence": "She was the [MASK]."}],
            [{"score": 0.02, "token": 2160, "token_str": "house", "sequence": "She [MASK] the house."}],
        ],
    ),
    "targets": Example(
        summary="Only these candidates, one of them of two pieces",
        request={"inputs": "She drank a cup of [MASK].", "targets": ["hot chocolate", "coffee"]},
        answer=[
            COFFEE,
            {
                "score": 0.00128,
                "token": None,
                "token_str": "hot chocolate",
                "sequence": "She drank a cup of hot chocolate.",
                "tokens": [2980, 7967],
            },
        ],
    ),
    "joint": Example(
        summary="Both masks together",
        request={"inputs": "She drank a [MASK] of [MASK].", "strategy": "joint", "top_k": 2},
        answer=[
            {
                "score": 0.0275,
                "tokens": [5835, 21092],
                "token_strs": ["bottle", "vodka"],
                "sequence": "She drank a bottle of vodka.",
            },
            {
                "score": 0.0178,
                "tokens": [5835, 5572],
                "token_strs": ["bottle", "tea"],
                "sequence": "She drank a bottle of tea.",
            },
        ],
    ),
    "details": Example(
        summary="A list in which one text is faulty, with details",
        request={
            "inputs": ["She drank a cup of [MASK].", "She drank a cup of tea."],
            "parameters": {"top_k": 1, "details": True},
        },
        answer={
            "results": [
                {"masks": [{"position": 6, "predictions": [COFFEE]}], "tokens": 9, "truncated": False},
                {
                    "error": "inputs: no [MASK] in the text; put one where a word is to be predicted",
                    "error_type": "Validation",
                },
            ],
            "usage": {"prompt_tokens": 9},
        },
    ),
}

NEXT_SENTENCE_EXAMPLES: Mapping[str, Example] = {
    "one_pair": Example(summary="One pair", request={"inputs": {"text": LOCK, "text_pair": DOOR}}, answer=FOLLOWS),
    "pairs": Example(
        summary="A list of pairs", request={"inputs": [[LOCK, DOOR], [LOCK, INFLATION]]}, answer=[FOLLOWS, UNRELATED]
    ),
    "candidates": Example(
        summary="Candidates to rank",
        request={"text": LOCK, "candidates": [INFLATION, DOOR]},
        answer=[
            {"index": 1, "text": DOOR, "is_next": 0.855, "truncated": False},
            {"index": 0, "text": INFLATION, "is_next": 0.268, "truncated": False},
        ],
    ),
}

EMBEDDINGS_EXAMPLES: Mapping[str, Example] = {
    "one_text": Example(
        summary="One text; its first 4 dimensions, for brevity",
        request={"model": "minilm", "input": "The cat sat on the mat.", "dimensions": 4},
        answer=_embeddings(CAT, tokens=9),
    ),
    "texts": Example(
        summary="A list of texts",
        request={
            "model": "minilm",
            "input": ["The cat sat on the mat.", "The bond market fell today."],
            "dimensions": 4,
        },
        answer=_embeddings(CAT, [0.0405, 0.798, 0.275, 0.534], tokens=17),
    ),
    "base64": Example(
        summary="float32 in base64, as the SDK asks for",
        request={
            "model": "minilm",
            "input": "The cat sat on the mat.",
            "dimensions": 4,
            "encoding_format": "base64",
        },
        answer=_embeddings("6G1PP829RT1CtvC9KHYSPw==", tokens=9),
    ),
}

MODEL = {"id": "weights/minilm-l6-bert-en", "object": "model", "created": 1796000000, "owned_by": "bert-service"}
MODELS = {"object": "list", "data": [MODEL]}

ALIVE = {"status": "alive"}
READY = {"status": "ready"}

INFO: Mapping[str, object] = {
    "model_id": "weights/minilm-l6-bert-en",
    "model_sha": None,
    "model_dtype": "float32",
    "model_type": {"embedding": {"pooling": "mean"}},
    "max_concurrent_requests": 4096,
    "max_input_length": 512,
    "max_batch_tokens": 1024,
    "max_batch_requests": None,
    "max_client_batch_size": 2048,
    "auto_truncate": True,
    "tokenization_workers": 2,
    "version": "0.1.0",
    "sha": None,
    "docker_label": None,
    "capabilities": {
        "fill_mask": True,
        "next_sentence": True,
        "embed": True,
        "embed_all": True,
        "embed_sparse": True,
        "tokenize": True,
    },
    "heads_missing": [],
    "device": "cpu",
    "dtype": "float32",
    "pooling": "mean",
    "revision": None,
    "max_embed_length": 256,
    "max_top_k": 1000,
    "hidden_size": 384,
    "vocab_size": 30522,
    "parameters": 22893116,
    "mask_token": "[MASK]",
    "attention": "sdpa",
    "least_embedding_cosine": 0.999999,
    "least_top1_agreement": 1.0,
    "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "tokenizers": "0.23.3", "fastapi": "0.165.0"},
}

METRICS = 'te_request_count{method="single"} 12.0\nte_request_failure{err="validation"} 1.0\nte_queue_size 0.0\n'

ERROR_MESSAGES: Mapping[int, str] = {
    400: "inputs[1]: the text is empty, or nothing is left of it after cleaning",
    401: "the API key is missing or wrong; send the header Authorization: Bearer KEY",
    404: "no such model; GET /v1/models names the one that is served",
    413: "the body is over the limit of 2000000 bytes (payload_limit)",
    415: "the content type must be application/json",
    429: "the queue is full",
    500: "the model failed on this item",
    503: "the model is loading",
    504: "the deadline passed while the item waited",
}

# What OpenAI's form of these errors says besides.
OPENAI_ERROR_PLACES: Mapping[int, Mapping[str, str]] = {
    400: {"param": "input[1]"},
    404: {"param": "model", "code": "model_not_found"},
}

# What one route alone may say.
ROUTE_ERROR_MESSAGES: Mapping[tuple[str, int], str] = {
    ("/fill-mask", 422): "inputs[2]: no [MASK] in the text; put one where a word is to be predicted",
    ("/fill-mask", 501): "this checkpoint holds no masked-LM head (cls.predictions), so it cannot fill masks",
    ("/next-sentence", 422): 'inputs[1]: must be {"text": …, "text_pair": …} or a list of two strings',
    ("/next-sentence", 501): "this checkpoint holds no next-sentence head (cls.seq_relationship)",
    ("/embed", 422): "dimensions: must be from 1 to 384, the width of the model",
    ("/embed", 501): "this checkpoint holds no pooler; use pooling cls, mean or max",
    ("/v1/embeddings", 400): "input[1]: the text is empty, or nothing is left of it after cleaning",
    ("/v1/embeddings", 501): "this checkpoint holds no pooler; use pooling cls, mean or max",
    ("/embed_all", 422): "inputs: the text has 300 tokens and the limit is 256, [CLS] and [SEP] counted; shorten it or "
    "send truncate: true",
    ("/embed_sparse", 422): "prompt_name: the model has no prompt of this name; it has: none",
    (
        "/embed_sparse",
        501,
    ): "this checkpoint holds no masked-LM head (cls.predictions), which sparse embeddings are made with",
    ("/similarity", 422): "inputs.sentences: is missing",
    ("/tokenize", 422): "inputs: must be a string or a list of strings",
    ("/decode", 422): "ids[1]: token ids must be from 0 to 30521, the ids of this model",
    ("/", 422): "inputs: must be a string, a list of token ids, or a list of those",
    ("/", 501): "this checkpoint holds no pooler; use pooling cls, mean or max",
}
