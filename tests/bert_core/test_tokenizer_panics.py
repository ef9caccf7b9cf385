from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from bert_core.tokenizer import BertTokenizer, TokenizerPanicError
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


# Plain text does not come to the library.
FOREIGN = "的"


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer.from_pretrained(SHIPPED)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tokenizer: tokenizer.encode(FOREIGN, max_length=9),
        lambda tokenizer: tokenizer.encode("a" * 3_000, max_length=9),
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
