"""Cut the sample of texts from a corpus: `python -m tests.benchmarks.make_sample CORPUS.txt.xz`.

The corpus has a paragraph a line and an empty line between documents. The sample is a log-normal mix of lengths, as
requests to an embedding service are: many short texts, a few that fill the model. Each text starts at a sentence and
ends at a word. Lengths are WordPiece tokens with `[CLS]` and `[SEP]`.
"""

from __future__ import annotations

import lzma
import math
import random
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist

from bert_core import BertTokenizer
from tests.benchmarks.texts import BLOCK, CHECKPOINT, SAMPLE

COUNT = 512
MEDIAN, MEAN_BEFORE_CUT = 47.6, 89.0
SHORTEST, LONGEST = 8, 511  # a pair has one token more
SEED = 20

# Of a log-normal distribution the mean is median * exp(sigma^2 / 2).
SIGMA = math.sqrt(2 * math.log(MEAN_BEFORE_CUT / MEDIAN))


def lengths() -> list[int]:
    """The quantiles of the distribution, so that a sample of this size has its mix and no chance in it; ascending."""
    normal = NormalDist(math.log(MEDIAN), SIGMA)
    quantiles = (math.exp(normal.inv_cdf((n + 0.5) / COUNT)) for n in range(COUNT))
    return [min(max(round(length), SHORTEST), LONGEST) for length in quantiles]


def arrival_order(count: int, *, randomness: random.Random) -> list[int]:
    """Ranks of length in the order of arrival: shuffled, but each block of `BLOCK` has the whole mix."""
    blocks = count // BLOCK
    order: list[int] = []
    for first in range(blocks):
        block = list(range(first, count, blocks))
        randomness.shuffle(block)
        order += block
    return order


def sentences(corpus: str) -> Iterator[str]:
    """The corpus's sentences in order, documents joined."""
    for paragraph in corpus.splitlines():
        if paragraph.strip():
            yield from re.split(r"(?<=[.!?]) +(?=[A-Z])", paragraph.strip())


def cut(corpus: str, wanted: Sequence[int], *, tokenizer: BertTokenizer) -> list[str]:
    """Consecutive texts of about the wanted lengths; the rest of a sentence that is cut is left out."""
    source = sentences(corpus)
    return [_text(source, tokens=tokens, tokenizer=tokenizer) for tokens in wanted]


def _text(source: Iterator[str], *, tokens: int, tokenizer: BertTokenizer) -> str:
    words: list[str] = []
    room = tokens - 2  # [CLS] and [SEP]
    while room > 0:
        for word in next(source).split():
            cost = len(tokenizer.encode(word, max_length=LONGEST).ids) - 2
            if cost > room:
                room = 0
                break
            words.append(word)
            room -= cost
    return " ".join(words)


def main(path: Path) -> None:
    """Write the sample."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        corpus = file.read()
    wanted = lengths()
    order = arrival_order(COUNT, randomness=random.Random(SEED))
    texts = cut(corpus, [wanted[rank] for rank in order], tokenizer=BertTokenizer.from_pretrained(CHECKPOINT))
    assert len(set(texts)) == COUNT
    SAMPLE.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
