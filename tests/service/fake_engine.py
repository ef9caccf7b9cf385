"""An engine without a model that can be served: its answers tell what was asked, and texts say how it shall behave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.errors import BackendFailure, EmptyInput, HeadMissing, InvalidInput, ServiceError, Unhealthy
from service.tasks import (
    Embed,
    EmbedResult,
    FillMask,
    FillMaskResult,
    MaskPredictions,
    ModelInfo,
    NextSentence,
    NextSentenceResult,
    Prediction,
    Result,
    Task,
)

PATIENCE_SECONDS = 10
"""How long a test waits for what must happen at once; only a failing test waits so long."""

LONGEST = 13
"""The limit of the fake model, in words."""

FAKE_INFO = ModelInfo(
    model_id="fake",
    revision="v7",
    device="cpu",
    dtype="float32",
    capabilities={"fill_mask": True, "next_sentence": True, "embed": True},
    heads_missing=(),
    pooling="mean",
    max_input_length=LONGEST,
    max_embed_length=11,
    hidden_size=5,
    vocab_size=99,
    parameters=1234,
    mask_token="[MASK]",
    least_embedding_cosine=0.9995,
    least_top1_agreement=0.99,
)


@dataclass(frozen=True, slots=True)
class FakeEncoded:
    task: Task
    compute_tokens: int
    answer_characters: int = 0


@dataclass
class FakeEngine:
    """Words are tokens. A text with `boom` fails in its pass; `poison` kills the device; `hold` makes passes wait.

    asked: every task that was encoded, in order.
    """

    info: ModelInfo = FAKE_INFO
    threads: int = 1
    budget: int = 101
    warm_up_with: Callable[[], object] = lambda: None
    asked: list[Task] = field(default_factory=list)
    passed: list[Task] = field(default_factory=list)
    entered: threading.Event = field(default_factory=threading.Event)
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    def warm_up(self) -> int:
        self.warm_up_with()
        return self.budget

    def encode(self, task: Task) -> FakeEncoded:
        self.asked.append(task)
        words = _words(task)
        head = {FillMask: "mlm", NextSentence: "nsp"}.get(type(task))
        if head in self.info.heads_missing:
            raise HeadMissing(f"this checkpoint holds no {head} head")
        if not words:
            raise EmptyInput("the text is empty", field="inputs")
        if isinstance(task, FillMask) and "[MASK]" not in words:
            raise InvalidInput("no [MASK] in the text", field="inputs")
        if len(words) > LONGEST and task.truncate is None:
            raise InvalidInput(f"{len(words)} tokens; at most {LONGEST}", field="inputs")
        return FakeEncoded(task, min(len(words), LONGEST))

    def run(self, batch: Sequence[FakeEncoded], *, threads: int) -> list[Result | ServiceError]:
        assert 1 <= threads <= self.threads
        self.entered.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        self.passed += [item.task for item in batch]
        if any("poison" in _words(item.task) for item in batch):
            raise Unhealthy("the device is gone")
        return [_result(item) for item in batch]


def _words(task: Task) -> list[str]:
    if isinstance(task.text, tuple):
        return [str(token) for token in task.text]
    return (task.text.split() + task.text_pair.split()) if isinstance(task, NextSentence) else task.text.split()


def _result(item: FakeEncoded) -> Result | ServiceError:
    words = _words(item.task)
    if "boom" in words:
        return BackendFailure("the model failed on this item")
    truncated = len(words) > LONGEST
    match item.task:
        case Embed():
            return EmbedResult(vector=fake_vector(words), tokens=item.compute_tokens, truncated=truncated)
        case NextSentence():
            is_next = 1 / (1 + len(words))
            logits = (float(len(words)), -0.5)
            return NextSentenceResult(
                is_next=is_next, not_next=1 - is_next, logits=logits, tokens=item.compute_tokens, truncated=truncated
            )
        case FillMask():
            masks = tuple(_mask(item.task, position) for position, word in enumerate(words) if word == "[MASK]")
            return FillMaskResult(masks=masks, tokens=item.compute_tokens, truncated=truncated)


def fake_vector(words: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """The vector of a text of these words, `[5]`."""
    return np.array([len(words), 1 / 3, -2.5, 0, 1e-7], dtype=np.float32)


def _mask(task: FillMask, position: int) -> MaskPredictions:
    words = task.targets or ("capital", "centre", "heart", "king", "end")
    predictions = tuple(
        Prediction(
            score=1 / (2 + rank),
            token=None if " " in word else 40 + rank,
            token_str=word,
            sequence=task.text.replace("[MASK]", word),
            tokens=(40, 41) if " " in word else None,
        )
        for rank, word in enumerate(words[: task.top_k])
    )
    return MaskPredictions(position=position, predictions=predictions)
