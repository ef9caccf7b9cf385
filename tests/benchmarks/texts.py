"""The texts of every benchmark: a shipped sample, and what is derived from it.

Nothing but the standard library is needed, since the peers' environments read them too.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median, quantiles

ROOT = Path(__file__).parent.parent.parent
CHECKPOINT = ROOT / "weights" / "minilm-l6-bert-en"
SAMPLE = Path(__file__).parent / "texts" / "sample.txt"

# Each block of so many consecutive texts has the mix of lengths of the whole sample.
BLOCK = 128
MASK = "[MASK]"


@dataclass(frozen=True, slots=True)
class Mix:
    """Figures of a list of lengths in tokens, `[CLS]` and `[SEP]` counted."""

    texts: int
    median: float
    mean: float
    percentile_95: float
    longest: int
    total: int


def mix(lengths: Sequence[int]) -> Mix:
    """The figures that a benchmark's report opens with."""
    return Mix(
        texts=len(lengths),
        median=median(lengths),
        mean=fmean(lengths),
        percentile_95=quantiles(lengths, n=20)[-1],
        longest=max(lengths),
        total=sum(lengths),
    )


def sample(count: int) -> list[str]:
    """The first `count` texts in their order of arrival, all distinct.

    Raises:
        ValueError: `count` is not a multiple of `BLOCK` that the sample holds.
    """
    texts = SAMPLE.read_text(encoding="utf-8").splitlines()
    if count % BLOCK or not 0 < count <= len(texts):
        raise ValueError(f"count: {count} is not a multiple of {BLOCK} up to {len(texts)}")
    return texts[:count]


def rotated(texts: Sequence[str], *, words: int) -> list[str]:
    """Each text with its first words moved to its end: other texts of about the same lengths."""
    turned = []
    for text in texts:
        parts = text.split()
        turn = words % len(parts)
        turned.append(" ".join(parts[turn:] + parts[:turn]))
    return turned


def distinct(texts: Sequence[str], *, count: int) -> list[str]:
    """`count` distinct texts: these, then each of them turned by one word, by two words, and so on.

    Raises:
        ValueError: the texts have too few words for so many.
    """
    seen: dict[str, None] = {}
    for words in range(max(len(text.split()) for text in texts)):
        for text in rotated(texts, words=words):
            seen[text] = None
            if len(seen) == count:
                return list(seen)
    raise ValueError(f"count: {count} distinct texts cannot be made of these")


def masked(text: str) -> str:
    """The text with the word in its middle masked."""
    parts = text.split()
    parts[len(parts) // 2] = MASK
    return " ".join(parts)


def pair(text: str) -> tuple[str, str]:
    """The text cut into two halves."""
    parts = text.split()
    half = (len(parts) + 1) // 2
    return " ".join(parts[:half]), " ".join(parts[half:])


def of_length(tokens: int, *, count: int) -> list[str]:
    """Distinct texts of exactly `tokens` tokens: words of the sample that are one piece each, in a chance order."""
    words = _whole_words()
    randomness = random.Random(tokens)
    return [" ".join(randomness.choices(words, k=tokens - 2)) for _ in range(count)]


@cache
def _whole_words() -> tuple[str, ...]:
    pieces = set((CHECKPOINT / "vocab.txt").read_text(encoding="utf-8").splitlines())
    words = SAMPLE.read_text(encoding="utf-8").split()
    return tuple(word for word in words if word.isascii() and word.isalpha() and word.lower() in pieces)
