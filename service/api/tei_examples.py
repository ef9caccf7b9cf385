"""Examples for the documentation of the routes of Text Embeddings Inference (TEI), as in `openapi_examples`."""

from __future__ import annotations

from collections.abc import Mapping

from service.api.openapi_examples import CAT, Example

MAT = "The cat sat on the mat."
CLS = {"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None}
SEP = {"id": 102, "text": "[SEP]", "special": True, "start": None, "stop": None}

EMBED_EXAMPLES: Mapping[str, Example] = {
    "one_text": Example(
        summary="One text; its first 4 dimensions, for brevity",
        request={"inputs": MAT, "dimensions": 4},
        answer=[CAT],
    ),
    "texts": Example(
        summary="A list of texts",
        request={"inputs": [MAT, "The bond market fell today."], "dimensions": 4},
        answer=[CAT, [0.0405, 0.798, 0.275, 0.534]],
    ),
    "token_ids": Example(
        summary="Token ids of the model's own tokenizer",
        request={"inputs": [101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102], "dimensions": 4},
        answer=[CAT],
    ),
    "pooling": Example(
        summary="The vector of [CLS], not scaled",
        request={"inputs": MAT, "dimensions": 4, "pooling": "cls", "normalize": False},
        answer=[[0.215, -0.101, 0.00175, 0.147]],
    ),
    "base64": Example(
        summary="float32 in base64",
        request={"inputs": MAT, "dimensions": 4, "encoding_format": "base64"},
        answer=["6G1PP829RT1CtvC9KHYSPw=="],
    ),
}

EMBED_ALL_EXAMPLES: Mapping[str, Example] = {
    "one_text": Example(
        summary="One text; the first numbers of each token's vector",
        request={"inputs": "Hello."},
        answer=[[[-0.109, -0.0141, 0.112, 0.0231], [-0.973, 0.755, 0.861, -0.0499]]],
        abridged=True,
    ),
    "token_ids": Example(
        summary="Token ids of the model's own tokenizer",
        request={"inputs": [101, 7592, 1012, 102]},
        answer=[[[-0.109, -0.0141, 0.112, 0.0231], [-0.973, 0.755, 0.861, -0.0499]]],
        abridged=True,
    ),
}

EMBED_SPARSE_EXAMPLES: Mapping[str, Example] = {
    "one_text": Example(
        summary="One text; the first weights",
        request={"inputs": MAT},
        answer=[[{"index": 100, "value": 1.45}, {"index": 101, "value": 2.72}, {"index": 102, "value": 1.9}]],
        abridged=True,
    ),
    "texts": Example(
        summary="A list of texts, cut at their beginning where they are too long",
        request={"inputs": [MAT, "Hello."], "truncate": True, "truncation_direction": "left"},
        answer=[[{"index": 100, "value": 1.45}], [{"index": 100, "value": 1.33}]],
        abridged=True,
    ),
}

SIMILARITY_EXAMPLES: Mapping[str, Example] = {
    "sentences": Example(
        summary="Two sentences compared with one",
        request={
            "inputs": {
                "source_sentence": MAT,
                "sentences": ["A kitten was sitting on a rug.", "The bond market fell today."],
            }
        },
        answer=[0.723, 0.0286],
    ),
    "truncate": Example(
        summary="Refuse texts that are too long",
        request={
            "inputs": {"source_sentence": MAT, "sentences": ["A kitten was sitting on a rug."]},
            "parameters": {"truncate": False},
        },
        answer=[0.723],
    ),
}

TOKENIZE_EXAMPLES: Mapping[str, Example] = {
    "one_text": Example(
        summary="One text",
        request={"inputs": "Hot chocolates"},
        answer=[
            [
                CLS,
                {"id": 2980, "text": "Hot", "special": False, "start": 0, "stop": 3},
                {"id": 7967, "text": "chocolate", "special": False, "start": 4, "stop": 13},
                {"id": 2015, "text": "s", "special": False, "start": 13, "stop": 14},
                SEP,
            ]
        ],
    ),
    "no_special_tokens": Example(
        summary="A list of texts, nothing put around them",
        request={"inputs": ["北京", ""], "add_special_tokens": False},
        answer=[
            [
                {"id": 1781, "text": "北", "special": False, "start": 0, "stop": 1},
                {"id": 1755, "text": "京", "special": False, "start": 1, "stop": 2},
            ],
            [],
        ],
    ),
}

DECODE_EXAMPLES: Mapping[str, Example] = {
    "one_list": Example(
        summary="One list of ids", request={"ids": [101, 1996, 4937, 2938, 102]}, answer=["the cat sat"]
    ),
    "lists": Example(
        summary="Several lists, special tokens kept",
        request={"ids": [[101, 1996, 4937, 2938, 102], [2980, 7967]], "skip_special_tokens": False},
        answer=["[CLS] the cat sat [SEP]", "hot chocolate"],
    ),
}
