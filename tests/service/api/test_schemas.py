"""What is refused before anything runs, and in which words."""

from __future__ import annotations

import json

import pytest

from service.api.request_body import parse_body
from service.api.schemas import FillMaskRequest, NextSentenceRequest, TaskRequest
from service.api.tei_schemas import EmbedRequest
from service.errors import EmptyInput, InvalidInput, RequestError
from service.settings import Settings

WHOLE = "must be a whole number"
TRUE_OR_FALSE = "must be true or false"
A_PAIR = 'must be {"text": …, "text_pair": …} or a list of two strings'
UNDER_INPUTS = 'a pair goes under inputs: {"inputs": {"text": …, "text_pair": …}}'
TWICE = "differs from parameters.{}; give only one of them"
TOO_MANY = "holds 4; at most 3 in one request (max_client_batch_size)"
CUT = "truncate, truncation_direction"
TOKEN_ID = "must be a token id, a whole number from 0"


def many_fields(count: int) -> str:
    return json.dumps({f"a{number}": 1 for number in range(count)})


def settings() -> Settings:
    return Settings(max_client_batch_size=3, max_top_k=4)


def fault(schema: type[TaskRequest], body: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse_body(body.encode("utf-8", "surrogatepass"), schema).tasks(settings())
    return caught.value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{}", "inputs: is missing"),
        ("[]", "body: must be a JSON object"),
        ('{"inputs": "a", "targets": [1, 2, "x", 3]}', "targets[0]: must be a string"),
        (many_fields(101), "body: an object has 101 fields; at most 100"),
        (f'{{"inputs": "a", "parameters": {many_fields(102)}}}', "body: an object has 102 fields; at most 100"),
        ('{"inputs": null}', "inputs: must be a string or a list of strings"),
        ('{"inputs": ["a", 1]}', "inputs[1]: must be a string"),
        ('{"inputs": ["a", ["b"]]}', "inputs[1]: must be a string"),
        ('{"inputs": "a", "top_k": "5"}', f"top_k: {WHOLE}"),
        ('{"inputs": "a", "top_k": 5.0}', f"top_k: {WHOLE}"),
        ('{"inputs": "a", "top_k": true}', f"top_k: {WHOLE}"),
        ('{"inputs": "a", "parameters": {"top_k": "5"}}', f"parameters.top_k: {WHOLE}"),
        ('{"inputs": "a", "top_k": 0}', "top_k: must be at least 1"),
        ('{"inputs": "a", "top_k": 5}', "top_k: is 5; must be at most 4 (max_top_k)"),
        ('{"inputs": "a", "parameters": {"top_k": 5}}', "parameters.top_k: is 5; must be at most 4 (max_top_k)"),
        ('{"inputs": "a", "top_k": 2, "parameters": {"top_k": 3}}', f"top_k: {TWICE.format('top_k')}"),
        ('{"inputs": "a", "details": false, "parameters": {"details": true}}', f"details: {TWICE.format('details')}"),
        ('{"inputs": "a", "targets": []}', "targets: must hold at least 1"),
        ('{"inputs": "a", "targets": "x"}', "targets: must be a list"),
        ('{"inputs": "a", "parameters": {"targets": ["x", ""]}}', "parameters.targets[1]: must not be empty"),
        ('{"inputs": "a", "targets": ["x", 3]}', "targets[1]: must be a string"),
        ('{"inputs": "a", "targets": ["1", "2", "3", "4", "5"]}', "targets: holds 5; at most 4 (max_top_k)"),
        ('{"inputs": "a", "truncate": 1}', f"truncate: {TRUE_OR_FALSE}"),
        ('{"inputs": "a", "truncate": "true"}', f"truncate: {TRUE_OR_FALSE}"),
        ('{"inputs": "a", "truncation_direction": "up"}', "truncation_direction: must be 'left' or 'right'"),
        ('{"inputs": "a", "truncation_direction": 3}', "truncation_direction: must be 'left' or 'right'"),
        ('{"inputs": ["a", "b", "c", "d"]}', f"inputs: {TOO_MANY}"),
        ('{"inputs": "a", "parameters": []}', "parameters: must be a JSON object"),
        (
            '{"inputs": "a", "topk": 3}',
            f"unknown field 'topk'; allowed: inputs, top_k, targets, strategy, details, {CUT}, parameters",
        ),
        (
            '{"inputs": "a", "parameters": {"secret words": 3}}',
            f"parameters: an unknown field; allowed: top_k, targets, strategy, details, {CUT}",
        ),
    ],
)
def test_fill_mask_faults(body: str, message: str) -> None:
    error = fault(FillMaskRequest, body)
    assert isinstance(error, InvalidInput)
    assert str(error) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{}", "inputs: give either inputs, or text and candidates"),
        ('{"inputs": ["a", "b"], "text": "a"}', "inputs: give either inputs, or text and candidates"),
        ('{"text": "a"}', "inputs: give either inputs, or text and candidates"),
        ('{"inputs": "a"}', "inputs: must be a pair or a list of pairs"),
        ('{"inputs": ["a", "b", "c"]}', f"inputs: {A_PAIR}"),
        ('{"inputs": ["a"]}', f"inputs: {A_PAIR}"),
        ('{"inputs": ["a", 3]}', "inputs[1]: must be a string"),
        ('{"inputs": [["a", "b"], ["a"]]}', f"inputs[1]: {A_PAIR}"),
        ('{"inputs": [["a", "b"], "c"]}', f"inputs[1]: {A_PAIR}"),
        ('{"inputs": [["a", null]]}', "inputs[0][1]: must be a string"),
        ('{"inputs": {"text": "a"}}', f"inputs: {A_PAIR}"),
        ('{"inputs": [{"text": "a", "text_pair": "b", "more": "c"}]}', f"inputs[0]: {A_PAIR}"),
        ('{"inputs": [{"text": "a", "text_pair": 3}]}', "inputs[0].text_pair: must be a string"),
        ('{"text": "a", "candidates": ["b", 3]}', "candidates[1]: must be a string"),
        ('{"text": "a", "candidates": ["1", "2", "3", "4"]}', f"candidates: {TOO_MANY}"),
        ('{"text": "a", "pair": "b"}', f"unknown field 'pair'; allowed: inputs, text, candidates, {CUT}"),
        ('{"text": "a", "text_pair": "b"}', f"unknown field 'text_pair'; {UNDER_INPUTS}"),
        ('{"text": "a", "text_pair": "b", "candidates": ["c"]}', f"unknown field 'text_pair'; {UNDER_INPUTS}"),
    ],
)
def test_next_sentence_faults(body: str, message: str) -> None:
    error = fault(NextSentenceRequest, body)
    assert isinstance(error, InvalidInput)
    assert str(error) == message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"inputs": {"a": 1}}', "inputs: must be a string, a list of token ids, or a list of those"),
        ('{"inputs": [101, "a"]}', f"inputs[1]: {TOKEN_ID}"),
        ('{"inputs": [101, 2.0]}', f"inputs[1]: {TOKEN_ID}"),
        ('{"inputs": [101, -1]}', f"inputs[1]: {TOKEN_ID}"),
        ('{"inputs": [true]}', f"inputs[0]: {TOKEN_ID}"),
        ('{"inputs": ["a", [["b"]]]}', f"inputs[1][0]: {TOKEN_ID}"),
        ('{"inputs": [null]}', "inputs[0]: must be a string or a list of token ids"),
        ('{"inputs": "a", "dimensions": 0}', "dimensions: must be at least 1"),
        ('{"inputs": "a", "normalize": "no"}', f"normalize: {TRUE_OR_FALSE}"),
        ('{"inputs": "a", "pooling": "sum"}', "pooling: must be 'pooler', 'cls', 'mean' or 'max'"),
        ('{"inputs": "a", "encoding_format": "hex"}', "encoding_format: must be 'float' or 'base64'"),
        ('{"inputs": ["a", "b", "c", [101]]}', f"inputs: {TOO_MANY}"),
    ],
)
def test_embed_faults(body: str, message: str) -> None:
    error = fault(EmbedRequest, body)
    assert isinstance(error, InvalidInput)
    assert str(error) == message


@pytest.mark.parametrize(
    ("schema", "body", "message"),
    [
        (FillMaskRequest, '{"inputs": []}', "inputs: must hold at least one text"),
        (EmbedRequest, '{"inputs": []}', "inputs: must hold at least one text"),
        (EmbedRequest, '{"inputs": ["a", []]}', "inputs[1]: must hold at least one token id"),
        (NextSentenceRequest, '{"inputs": []}', "inputs: must hold at least one pair"),
        (NextSentenceRequest, '{"text": "a", "candidates": []}', "candidates: must hold at least one text"),
    ],
)
def test_empty_lists(schema: type[TaskRequest], body: str, message: str) -> None:
    error = fault(schema, body)
    assert isinstance(error, EmptyInput)
    assert str(error) == message


@pytest.mark.parametrize(
    "body",
    [
        '{"inputs": "a", "ignored": NaN}',
        '{"inputs": "a", "ignored": -Infinity}',
        '{"inputs": "a", "ignored": 1e999}',
        '{"inputs": "\\ud800"}',
        '{"inputs": "\\udc00 b"}',
        '{"inputs": "\ud800"}',
        '{"inputs": "a",}',
        '\ufeff{"inputs": "a"}',
        '{"inputs": "a"} x',
        "{'inputs': 'a'}",
        "",
        "[" * 5000,
    ],
)
def test_what_is_not_strict_json_is_refused(body: str) -> None:
    error = fault(EmbedRequest, body)
    assert isinstance(error, InvalidInput)
    assert str(error).startswith("the body is not valid JSON: ")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ('{"inputs": "a [MASK]", "top_k": 2, "parameters": {"top_k": 2}}', 2),
        ('{"inputs": "a [MASK]", "top_k": 4}', 4),
        ('{"inputs": "a [MASK]", "top_k": null, "parameters": {"top_k": 3}}', 3),
        ('{"inputs": "a [MASK]", "top_k": 1, "parameters": {"top_k": null}}', 1),
        ('{"inputs": "a [MASK]", "parameters": null}', 4),
    ],
)
def test_an_option_may_stand_in_either_place(body: str, value: int | None) -> None:
    [task] = parse_body(body.encode(), FillMaskRequest).tasks(settings())
    assert task.top_k == value


@pytest.mark.parametrize("name", ["password123 is", "x" * 41, "ключ", "a.b", "a\\n", ""])
def test_field_names_that_may_be_user_text_are_not_repeated(name: str) -> None:
    error = fault(FillMaskRequest, f'{{"inputs": "a", "{name}": 1}}')
    assert str(error).startswith("an unknown field; allowed: inputs, ")


@pytest.mark.parametrize("name", ["topK", "top-k", "_", "9", "x" * 40])
def test_field_names_that_look_like_some_are_repeated(name: str) -> None:
    error = fault(FillMaskRequest, f'{{"inputs": "a", "{name}": 1}}')
    assert str(error).startswith(f"unknown field {name!r}; allowed: inputs, ")


@pytest.mark.parametrize(
    ("body", "max_top_k", "top_k"),
    [
        ('{"inputs": "a"}', 3, 3),
        ('{"inputs": "a"}', 4, 4),
        ('{"inputs": "a"}', 5, None),
        ('{"inputs": "a"}', 1000, None),
        ('{"inputs": "a", "top_k": 2}', 3, 2),
        ('{"inputs": "a", "targets": ["x"]}', 3, None),
    ],
)
def test_no_more_predictions_than_allowed_without_being_asked(body: str, max_top_k: int, top_k: int | None) -> None:
    [task] = parse_body(body.encode(), FillMaskRequest).tasks(Settings(max_top_k=max_top_k))
    assert task.top_k == top_k
