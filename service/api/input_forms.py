"""The forms that `inputs` may take: one item or a list.

An item stays as it is and a list stays a list, for that decides the shape of the answer. Plain functions check them,
and name the place of a fault (`inputs[3].text_pair`), where a union type would list a fault for every form.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import PlainValidator, WithJsonSchema

from service.errors import EmptyInput, InvalidInput

Pair: TypeAlias = tuple[str, str]
TokenIds: TypeAlias = tuple[int, ...]


def _filled_list(value: object, *, forms: str, item: str, place: str = "inputs") -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(f"must be {forms}", field=place)
    if not value:
        raise EmptyInput(f"must hold at least one {item}", field=place)
    return value


def _string(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput("must be a string", field=place)
    return value


def _texts(value: object) -> str | list[str]:
    if isinstance(value, str):
        return value
    texts = _filled_list(value, forms="a string or a list of strings", item="text")
    return [_string(text, f"inputs[{index}]") for index, text in enumerate(texts)]


def _pairs(value: object) -> Pair | list[Pair]:
    if isinstance(value, dict):
        return _pair(value, "inputs")
    pairs = _filled_list(value, forms="a pair or a list of pairs", item="pair")
    if isinstance(pairs[0], str):
        return _pair(pairs, "inputs")
    return [_pair(pair, f"inputs[{index}]") for index, pair in enumerate(pairs)]


def _pair(value: object, place: str) -> Pair:
    if isinstance(value, dict) and value.keys() == {"text", "text_pair"}:
        return _string(value["text"], f"{place}.text"), _string(value["text_pair"], f"{place}.text_pair")
    if isinstance(value, list) and len(value) == 2:
        return _string(value[0], f"{place}[0]"), _string(value[1], f"{place}[1]")
    raise InvalidInput('must be {"text": …, "text_pair": …} or a list of two strings', field=place)


def _texts_or_token_ids(value: object) -> str | TokenIds | list[str | TokenIds]:
    if isinstance(value, str):
        return value
    items = _filled_list(value, forms="a string, a list of token ids, or a list of those", item="text")
    if isinstance(items[0], int):
        return _token_ids(items, "inputs")
    return [item if isinstance(item, str) else _token_ids(item, f"inputs[{index}]") for index, item in enumerate(items)]


def _token_id_lists(value: object) -> TokenIds | list[TokenIds]:
    items = _filled_list(value, forms="a list of token ids or a list of those", item="token id", place="ids")
    if isinstance(items[0], list):
        return [_token_ids(item, f"ids[{index}]") for index, item in enumerate(items)]
    return _token_ids(items, "ids")


def _token_ids(value: object, place: str) -> TokenIds:
    ids = _filled_list(value, forms="a string or a list of token ids", item="token id", place=place)
    if set(map(type, ids)) == {int} and min(ids) >= 0:
        return tuple(ids)
    fault = next(index for index, token in enumerate(ids) if type(token) is not int or token < 0)
    raise InvalidInput("must be a token id, a whole number from 0", field=f"{place}[{fault}]")


_TEXT = {"type": "string"}
_TEXT_PAIR = {
    "anyOf": [
        {"type": "object", "properties": {"text": _TEXT, "text_pair": _TEXT}, "required": ["text", "text_pair"]},
        {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 2},
    ]
}
_TOKEN_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def _one_or_list(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


Texts: TypeAlias = Annotated[Any, PlainValidator(_texts), _one_or_list(_TEXT)]
Pairs: TypeAlias = Annotated[Any, PlainValidator(_pairs), _one_or_list(_TEXT_PAIR)]
TextsOrTokenIds: TypeAlias = Annotated[
    Any, PlainValidator(_texts_or_token_ids), _one_or_list({"anyOf": [_TEXT, _TOKEN_IDS]})
]
TokenIdLists: TypeAlias = Annotated[Any, PlainValidator(_token_id_lists), _one_or_list(_TOKEN_IDS)]
