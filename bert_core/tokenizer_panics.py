"""Panics of the `tokenizers` library, which is written in Rust."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TokenizerPanicError(RuntimeError):
    """The `tokenizers` library failed within itself."""

    def __init__(self) -> None:
        super().__init__("the tokenizers library failed within itself")


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic within the block as a `TokenizerPanicError`, without its message, which may quote the text."""
    try:
        yield
    except BaseException as error:
        if not _is_panic(error):
            raise
        raise TokenizerPanicError from None


def _is_panic(error: BaseException) -> bool:
    """PyO3 makes the class anew for each library, derived from `BaseException`, and gives no way to import it."""
    kind = type(error)
    return (kind.__module__, kind.__name__) == ("pyo3_runtime", "PanicException")
