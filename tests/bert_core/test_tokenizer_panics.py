from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tokenizers import Tokenizer

from bert_core.added_tokens import added_token
from bert_core.tokenizer import BertTokenizer, TokenizerPanicError
from bert_core.tokenizer_files import read_tokenizer_files
from bert_core.tokenizer_panics import panics_as_errors
from tests.bert_core.tokenizer_folders import SHIPPED

SECRET = "the user's text"
MADE_UP = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


class PanickingTokenizer:
    """Stands in for the library's; raises what it is made with, whatever it is asked."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def encode(self, *_: object, **__: object) -> None:
        raise self._error

    encode_batch = decode = decode_batch = encode


FOREIGN = "的"


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer.from_pretrained(SHIPPED)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tokenizer: tokenizer.encode(FOREIGN, max_length=9),
        lambda tokenizer: tokenizer.encode(FOREIGN * 3_000, max_length=9),
        lambda tokenizer: tokenizer.encode_pair(FOREIGN, "b", max_length=9, truncate="left"),
        lambda tokenizer: tokenizer.pieces(FOREIGN),
        lambda tokenizer: tokenizer.decode([7]),
        lambda tokenizer: tokenizer.decode([7] * 300),
    ],
)
def test_a_panic_is_an_error_that_does_not_quote_the_text(
    tokenizer: BertTokenizer, ask: Callable[[BertTokenizer], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "_tokenizer", PanickingTokenizer(MADE_UP(SECRET)))
    with pytest.raises(TokenizerPanicError, match="^the tokenizers library failed within itself$") as caught:
        ask(tokenizer)
    assert caught.value.__suppress_context__


def test_a_panic_of_the_library_itself_is_recognised() -> None:
    with pytest.raises(TokenizerPanicError), panics_as_errors():
        Tokenizer.from_str('{"version": "1.0", "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}')


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(3),
        MemoryError(),
        type("PanicException", (BaseException,), {})(),
        ValueError("a"),
    ],
    ids=repr,
)
def test_nothing_else_is_taken_for_a_panic(
    tokenizer: BertTokenizer, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "_tokenizer", PanickingTokenizer(error))
    with pytest.raises(type(error)):
        tokenizer.encode(FOREIGN, max_length=9)


def test_plain_text_does_not_come_to_the_library(tokenizer: BertTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tokenizer.encode("a [MASK]", max_length=9)
    monkeypatch.setattr(tokenizer, "_tokenizer", PanickingTokenizer(MADE_UP(SECRET)))
    assert tokenizer.encode("a [MASK]", max_length=9) == expected


@pytest.mark.parametrize(
    "added", [[("x", {"lstrip": True})], [("x", {"normalized": True})], [(f"x{number}", {}) for number in range(100)]]
)
def test_but_does_where_added_tokens_are_many_or_look_around(
    added: list[tuple[str, dict[str, bool]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    description = read_tokenizer_files(SHIPPED)
    token_ids = {**description.token_ids}
    tokens = [*description.added_tokens]
    for content, flags in added:
        token_id = token_ids.setdefault(content, len(token_ids))
        tokens.append(added_token({"content": content, "normalized": False, **flags}, token_id=token_id))
    tokenizer = BertTokenizer(replace(description, token_ids=token_ids, added_tokens=tokens))
    monkeypatch.setattr(tokenizer, "_tokenizer", PanickingTokenizer(MADE_UP(SECRET)))
    with pytest.raises(TokenizerPanicError):
        tokenizer.encode("a", max_length=9)
