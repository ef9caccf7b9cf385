"""What `bert_core.precision` publishes of each dtype, on English text and the shipped checkpoint."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from bert_core.precision import MEASURED_BOUNDS, Bounds, computes_natively
from service.engine.engine import Engine
from service.tasks import Embed, EmbedResult, FillMask, FillMaskResult, Task
from tests.benchmarks.texts import CHECKPOINT, sample

BATCH = 32

# Two masks a text: about 1,000 in all, enough for a share of 0.99 to mean something.
WORDS = [text.split()[:20] for text in sample(512)]


def masked(words: list[str], *, number: int) -> str:
    words = list(words)
    for place in (number, number + 11):
        words[place % len(words)] = "[MASK]"
    return " ".join(words)


def answers(dtype: str) -> tuple[npt.NDArray[np.float32], list[int | None]]:
    """Embeddings `[texts, D]`, and the first guess for each mask."""
    engine = Engine.load(CHECKPOINT, device="cpu", dtype=dtype)
    tasks: list[Task] = [Embed(text=" ".join(words)) for words in WORDS]
    tasks += [FillMask(text=masked(words, number=number), top_k=1) for number, words in enumerate(WORDS)]
    vectors, guesses = [], []
    for first in range(0, len(tasks), BATCH):
        for result in engine.run([engine.encode(task) for task in tasks[first : first + BATCH]]):
            if isinstance(result, EmbedResult):
                vectors.append(result.vector)
            else:
                assert isinstance(result, FillMaskResult)
                guesses += [mask.predictions[0].token for mask in result.masks]
    return np.stack(vectors), guesses


@pytest.fixture(scope="module")
def exact() -> tuple[npt.NDArray[np.float32], list[int | None]]:
    return answers("float32")


NATIVE = {
    dtype: bounds for dtype, bounds in MEASURED_BOUNDS.items() if computes_natively(dtype, device=torch.device("cpu"))
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("dtype", "bounds"), NATIVE.items(), ids=str)
def test_a_dtype_keeps_its_bounds(
    dtype: torch.dtype, bounds: Bounds, exact: tuple[npt.NDArray[np.float32], list[int | None]]
) -> None:
    vectors, guesses = answers(str(dtype).removeprefix("torch."))
    agree = [one == other for one, other in zip(guesses, exact[1], strict=True)]
    assert len(agree) > 1000
    assert (vectors * exact[0]).sum(1).min() >= bounds.embedding_cosine
    assert np.mean(agree) >= bounds.top1_agreement
