"""An engine without a model that can be served: its answers tell what was asked, and texts say how it shall behave."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.errors import BackendFailure, EmptyInput, HeadMissing, InvalidInput, ServiceError, Unhealthy
from service.tasks import (
    Decode,
    DecodeResult,
    Embed,
    EmbedAll,
    EmbedAllResult,
    EmbedResult,
    EmbedSparse,
    EmbedSparseResult,
    FilledText,
    FillMask,
    FillMaskResult,
    FillNextMask,
    MaskPredictions,
    ModelInfo,
    NextMaskResult,
    NextSentence,
    NextSentenceResult,
    Prediction,
    Result,
    Task,
    Tokenize,
    TokenizeResult,
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
    capabilities={
        "fill_mask": True,
        "next_sentence": True,
        "embed": True,
        "embed_all": True,
        "embed_sparse": True,
        "tokenize": True,
    },
    heads_missing=(),
    pooling="mean",
    max_input_length=LONGEST,
    max_embed_length=11,
    hidden_size=5,
    vocab_size=99,
    parameters=1234,
    mask_token="[MASK]",
    attention="sdpa",
    least_embedding_cosine=0.9995,
    least_top1_agreement=0.99,
)


@dataclass(frozen=True, slots=True)
class FakeEncoded:
    task: Task
    compute_tokens: int
    answer_characters: int = 0
    result: Result | None = None


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
        result = _result_without_pass(task)
        if result is not None:
            return FakeEncoded(task, 0, result=result)
        words = _words(task)
        head = {FillMask: "mlm", FillNextMask: "mlm", EmbedSparse: "mlm", NextSentence: "nsp"}.get(type(task))
        if head in self.info.heads_missing:
            raise HeadMissing(f"this checkpoint holds no {head} head")
        if not words:
            raise EmptyInput("the text is empty", field="inputs")
        if isinstance(task, FillMask | FillNextMask) and "[MASK]" not in words:
            raise InvalidInput("no [MASK] in the text", field="inputs")
        assert not isinstance(task, Tokenize | Decode)
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


def _result_without_pass(task: Task) -> Result | None:
    match task:
        case Tokenize():
            words = task.text.split()
            ends = [task.text.index(word) + len(word) for word in words]
            offsets = [(end - len(word), end) for word, end in zip(words, ends, strict=True)]
            if task.add_special_tokens:
                offsets = [(0, 0), *offsets, (0, 0)]
            return TokenizeResult(
                text=task.text,
                ids=np.arange(7, 7 + len(offsets)),
                offsets=np.array(offsets, dtype=np.int64).reshape(-1, 2),
                special_tokens=("[CLS]", "[SEP]") if task.add_special_tokens else (),
            )
        case Decode():
            if max(task.ids) >= FAKE_INFO.vocab_size:
                raise InvalidInput("there is no such id", field="inputs")
            return DecodeResult(
                text=" ".join(str(token) for token in task.ids if token or not task.skip_special_tokens)
            )
        case FillNextMask(filled=filled) if filled and None not in filled:
            pieces = tuple(f"piece{token}" for token in filled)
            return FilledText(sequence=" ".join(pieces), token_strs=pieces, tokens=len(_words(task)), truncated=False)
        case _:
            return None


def _words(task: Task) -> list[str]:
    if isinstance(task, Decode):
        return []
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
        case EmbedAll():
            vectors = np.stack([fake_vector(words[: count + 1]) for count in range(len(words))])
            return EmbedAllResult(vectors=vectors, tokens=item.compute_tokens, truncated=truncated)
        case EmbedSparse():
            values = np.arange(1, 1 + len(words), dtype=np.float32) / np.float32(4)
            indices = 10 * np.arange(len(words))
            return EmbedSparseResult(indices=indices, values=values, tokens=item.compute_tokens, truncated=truncated)
        case FillNextMask():
            return _next_mask(item.task, masks=words.count("[MASK]"))
        case FillMask():
            masks = tuple(_mask(item.task, position) for position, word in enumerate(words) if word == "[MASK]")
            return FillMaskResult(masks=masks, tokens=item.compute_tokens, truncated=truncated)
        case _:
            raise AssertionError("takes no pass")


def _next_mask(task: FillNextMask, *, masks: int) -> NextMaskResult:
    """The last open mask; a candidate's id is 40 + its rank, its probability 1 / (2 + rank)."""
    mask = max(place for place in range(masks) if not task.filled or task.filled[place] is None)
    candidates = tuple((40 + rank, -math.log(2 + rank)) for rank in range(task.top_k))
    return NextMaskResult(mask=mask, masks=masks, candidates=candidates, tokens=len(_words(task)), truncated=False)


def texts_of(tasks: Sequence[Task]) -> list[str | tuple[int, ...]]:
    """Their texts, as far as they have one."""
    return [task.text for task in tasks if not isinstance(task, Decode)]


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
