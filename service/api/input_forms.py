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


def _string(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput("must be a string", field=place)
    return value


def _texts(value: object) -> str | list[str]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InvalidInput("must be a string or a list of strings", field="inputs")
    if not value:
        raise EmptyInput("must hold at least one text", field="inputs")
    return [_string(item, f"inputs[{index}]") for index, item in enumerate(value)]


def _pairs(value: object) -> Pair | list[Pair]:
    if isinstance(value, dict):
        return _pair(value, "inputs")
    if not isinstance(value, list):
        raise InvalidInput("must be a pair or a list of pairs", field="inputs")
    if not value:
        raise EmptyInput("must hold at least one pair", field="inputs")
    if isinstance(value[0], str):
        return _pair(value, "inputs")
    return [_pair(item, f"inputs[{index}]") for index, item in enumerate(value)]


def _pair(value: object, place: str) -> Pair:
    if isinstance(value, dict) and value.keys() == {"text", "text_pair"}:
        return _string(value["text"], f"{place}.text"), _string(value["text_pair"], f"{place}.text_pair")
    if isinstance(value, list) and len(value) == 2:
        return _string(value[0], f"{place}[0]"), _string(value[1], f"{place}[1]")
    raise InvalidInput('must be {"text": …, "text_pair": …} or a list of two strings', field=place)


def _texts_or_token_ids(value: object) -> str | TokenIds | list[str | TokenIds]:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InvalidInput("must be a string, a list of token ids, or a list of those", field="inputs")
    if not value:
        raise EmptyInput("must hold at least one text", field="inputs")
    if isinstance(value[0], int):
        return _token_ids(value, "inputs")
    return [item if isinstance(item, str) else _token_ids(item, f"inputs[{index}]") for index, item in enumerate(value)]


def _token_ids(value: object, place: str) -> TokenIds:
    if not isinstance(value, list):
        raise InvalidInput("must be a string or a list of token ids", field=place)
    if not value:
        raise EmptyInput("must hold at least one token id", field=place)
    if set(map(type, value)) == {int} and min(value) >= 0:
        return tuple(value)
    fault = next(index for index, token in enumerate(value) if type(token) is not int or token < 0)
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
