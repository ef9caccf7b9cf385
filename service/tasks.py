"""What may be asked of the model and what comes back: plain frozen dataclasses.

A task is one item: one text, or one pair. A request with a list makes one task per element, and tasks of every
kind, from every client, share batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

TruncationSide: TypeAlias = Literal["left", "right"]
"""The end of an over-long text that is cut off."""

Pooling: TypeAlias = Literal["pooler", "cls", "mean", "max"]
"""How token vectors become one vector. `cls` is the last hidden state before the pooler's dense and tanh."""

FloatVector: TypeAlias = npt.NDArray[np.float32]
IntegerVector: TypeAlias = npt.NDArray[np.int64]

DEFAULT_TOP_K = 5
"""Predictions per mask where a task asks for no number and names no targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FillMask:
    """Predict what stands at each `[MASK]` of a text.

    top_k: how many predictions per mask; None means `DEFAULT_TOP_K`, or all targets where targets are given.
    targets: the only candidates to score; None means the whole vocabulary.
    truncate: None refuses a text over the model's limit; a side cuts that side first, but never a mask.
    """

    text: str
    top_k: int | None = None
    targets: tuple[str, ...] | None = None
    truncate: TruncationSide | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSentence:
    """Does `text_pair` follow `text`? Over-long pairs are cut longest first, at the given side of each half."""

    text: str
    text_pair: str
    truncate: TruncationSide | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed:
    """One vector for one text.

    text: the text, or a whole sequence of the model's ids, `[CLS]` first and `[SEP]` last, used as they are.
    pooling: None takes the checkpoint's own.
    dimensions: keep this many leading components (before normalisation); None keeps all.
    prompt_name: the checkpoint's prompt to put before a text; None takes its default prompt, if it has one.
    """

    text: str | tuple[int, ...]
    pooling: Pooling | None = None
    normalize: bool = True
    dimensions: int | None = None
    prompt_name: str | None = None
    truncate: TruncationSide | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedAll:
    """The last hidden state of every token of one text, `[CLS]` and `[SEP]` among them; fields as in `Embed`."""

    text: str | tuple[int, ...]
    prompt_name: str | None = None
    truncate: TruncationSide | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedSparse:
    """One weight for each piece of the vocabulary (SPLADE, Formal et al. 2021); fields as in `Embed`."""

    text: str | tuple[int, ...]
    prompt_name: str | None = None
    truncate: TruncationSide | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FillNextMask:
    """Predict one of the masks of a text, that which the model is most certain of, given what stands at the others.

    A step of filling several masks jointly. With no mask left to fill it takes no pass and has a `FilledText`.

    filled: for each mask, in the order of the text, the id that stands there; None where it is still to be filled.
        Empty if no mask is filled yet.
    encoding: that of the text, from the `NextMaskResult` of an earlier step, so that it is tokenized once.
    """

    text: str
    filled: tuple[int | None, ...] = ()
    encoding: object = None
    top_k: int = DEFAULT_TOP_K
    truncate: TruncationSide | None = None

    def filling(self, *, masks: int) -> tuple[int | None, ...]:
        """`filled` for each of the text's masks, also if none is."""
        return self.filled or (None,) * masks


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenize:
    """The tokens of a text, of whatever length up to a limit of its own. Takes no pass.

    add_special_tokens: whether `[CLS]` and `[SEP]` are put around it.
    prompt_name: as in `Embed`.
    """

    text: str
    add_special_tokens: bool = True
    prompt_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """The text of token ids. Takes no pass."""

    ids: tuple[int, ...]
    skip_special_tokens: bool = True


Task: TypeAlias = FillMask | NextSentence | Embed | EmbedAll | EmbedSparse | FillNextMask | Tokenize | Decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One candidate for one mask.

    score: probability under a softmax over the whole vocabulary; for a target of several pieces, the exponential
        of the mean log probability of its pieces.
    token: id in the vocabulary; None for a target of several pieces, whose ids are in `tokens`.
    sequence: the caller's text with the candidate in the mask's place.
    """

    score: float
    token: int | None
    token_str: str
    sequence: str
    tokens: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskPredictions:
    """The predictions for one mask, best first; `position` is the mask's place among the tokens of the pass."""

    position: int
    predictions: tuple[Prediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FillMaskResult:
    """One `MaskPredictions` per mask, in the order of the text."""

    masks: tuple[MaskPredictions, ...]
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSentenceResult:
    """`logits[0]` is "is next", as in BERT's pre-training data; probabilities are their softmax."""

    is_next: float
    not_next: float
    logits: tuple[float, float]
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedResult:
    """`vector`: float32 `[D]`, or `[dimensions]`."""

    vector: FloatVector
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedAllResult:
    """`vectors`: float32 `[T, D]`, one a token."""

    vectors: FloatVector
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedSparseResult:
    """`values`: float32 `[K]`, the weights that are not zero; `indices`: int64 `[K]`, their ids, ascending."""

    indices: IntegerVector
    values: FloatVector
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextMaskResult:
    """The candidates for one mask, best first.

    mask: which of the text's masks it is, from 0.
    candidates: ids, and the logarithms of their probabilities given what stands at the filled masks.
    encoding: of the text, for the next step; the engine's own business.
    """

    mask: int
    masks: int
    candidates: tuple[tuple[int, float], ...]
    tokens: int
    truncated: bool
    encoding: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledText:
    """The caller's text with all masks filled, and the pieces that were put in, as the vocabulary spells them."""

    sequence: str
    token_strs: tuple[str, ...]
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPrediction:
    """One way to fill all masks of a text.

    score: the probability of the first mask's piece, times that of the second's given the first, and so on.
    token_ids, token_strs: one for each mask, in the order of the text.
    """

    score: float
    token_ids: tuple[int, ...]
    token_strs: tuple[str, ...]
    sequence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JointFillResult:
    """The ways that were found to fill all masks of a text, best first."""

    predictions: tuple[JointPrediction, ...]
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeResult:
    """The tokens of a text.

    text: what the offsets count in: the caller's text, after the prompt where there is one.
    ids: int64 `[T]`. offsets: int64 `[T, 2]`, start and end in characters.
    special_tokens: the tokens that were put around the text, the first before it and the second after it; or none.
    """

    text: str
    ids: IntegerVector
    offsets: IntegerVector
    special_tokens: tuple[str, ...]
    truncated: Literal[False] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeResult:
    """The text of the ids: pieces joined, a space between words."""

    text: str
    truncated: Literal[False] = False


Result: TypeAlias = (
    FillMaskResult
    | NextSentenceResult
    | EmbedResult
    | EmbedAllResult
    | EmbedSparseResult
    | NextMaskResult
    | FilledText
    | JointFillResult
    | TokenizeResult
    | DecodeResult
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where one item's time went, in seconds."""

    tokenization: float = 0.0
    queue: float = 0.0
    inference: float = 0.0

    @classmethod
    def slowest(cls, timings: Iterable[Timing]) -> Timing:
        """Of items that went through side by side, in each respect; zero of none."""
        all_timings = [*timings]
        return cls(
            tokenization=max((timing.tokenization for timing in all_timings), default=0.0),
            queue=max((timing.queue for timing in all_timings), default=0.0),
            inference=max((timing.inference for timing in all_timings), default=0.0),
        )

    def __add__(self, later: Timing) -> Timing:
        """Of steps one after the other."""
        return Timing(
            tokenization=self.tokenization + later.tokenization,
            queue=self.queue + later.queue,
            inference=self.inference + later.inference,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """A pass through the model: how many items and tokens went together, and when, on `time.monotonic`'s clock."""

    items: int
    tokens: int
    started: float
    finished: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A result and what it cost.

    compute_tokens: every token that was passed through the model for it.
    passes: those that it went through, in order of time: one, none, or a step each where masks are filled jointly.
    """

    result: Result
    timing: Timing
    compute_tokens: int
    passes: tuple[PassRecord, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The facts about a served model that `/info` and the start-up log report.

    capabilities: task name (`fill_mask`, `next_sentence`, `embed` …) to whether the checkpoint can do it.
    heads_missing: heads (`pooler`, `mlm`, `nsp`) that the checkpoint does not hold.
    max_input_length: longest sequence of the model, in tokens, `[CLS]` and `[SEP]` counted.
    max_embed_length: the same for embeddings, where sentence-transformers files set a lower limit.
    pooling: the default pooling of embeddings.
    attention: the kernel of attention: `varlen`, `tiles` or `sdpa`.
    least_embedding_cosine, least_top1_agreement: how close the dtype stays to float32, as measured on the shipped
        checkpoint (`bert_core.precision`).
    """

    model_id: str
    revision: str | None
    device: str
    dtype: str
    capabilities: dict[str, bool]
    heads_missing: tuple[str, ...]
    pooling: Pooling
    max_input_length: int
    max_embed_length: int
    hidden_size: int
    vocab_size: int
    parameters: int
    mask_token: str
    attention: str
    least_embedding_cosine: float
    least_top1_agreement: float
