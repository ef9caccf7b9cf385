"""What sits on the encoder: pooler, masked-LM head and next-sentence head.

Axes: N sequences, T packed tokens, X rows of any kind, M gathered rows, D hidden, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bert_core.activations import get_activation
from bert_core.config import BertConfig
from bert_core.layer_norm import LayerNorm
from bert_core.linear import Linear
from bert_core.packing import PackedTokens


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Which heads a model has, or a checkpoint holds. The next-sentence head reads the pooler's output.

    Raises:
        ValueError: a next-sentence head without a pooler.
    """

    pooler: bool = True
    mlm: bool = True
    nsp: bool = True

    def __post_init__(self) -> None:
        if self.nsp and not self.pooler:
            raise ValueError("nsp: the next-sentence head reads the pooler's output, so it needs pooler=True")

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the heads that are there."""
        return tuple(name for name in ("pooler", "mlm", "nsp") if getattr(self, name))

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the heads that are not."""
        return tuple(name for name in ("pooler", "mlm", "nsp") if not getattr(self, name))


def mean_of_tokens(hidden_TD: Tensor, packed: PackedTokens) -> Tensor:
    """The mean over each sequence's tokens, `[N, D]`, summed in float32 at least."""
    return reduce_segments(hidden_TD, offsets_N1=packed.offsets_N1, how="mean")


def reduce_segments(rows_XD: Tensor, *, offsets_N1: Tensor, how: str) -> Tensor:
    """The `mean` or `max` over each segment of rows `[X, D]`, `[N, D]` in their dtype, summed in float32 at least.

    By offsets, not lengths: PyTorch checks lengths on the host, which would wait for a GPU.
    """
    summands_XD = rows_XD.to(torch.promote_types(rows_XD.dtype, torch.float32))
    return torch.segment_reduce(summands_XD, how, offsets=offsets_N1.long(), axis=0).to(rows_XD.dtype)


class Pooler(nn.Module):
    """Dense layer and tanh on the first token, or on the mean of all tokens: one vector a sequence."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size, activation=torch.tanh)
        self.averages = config.pooler_type == "all_token_average"

    def forward(self, vectors_ND: Tensor) -> Tensor:
        """The dense layer on first tokens, or on means, `[N, D]` to `[N, D]`."""
        pooled_ND: Tensor = self.dense(vectors_ND)
        return pooled_ND

    def pool(self, hidden_TD: Tensor, packed: PackedTokens) -> Tensor:
        """`[T, D]` to `[N, D]`."""
        return self.forward(mean_of_tokens(hidden_TD, packed) if self.averages else hidden_TD[packed.first_rows_N])


class MaskedLMHead(nn.Module):
    """Scores of the vocabulary for given rows: dense, activation, LayerNorm, and a decoder with its own bias.

    The decoder's weight is that of the word embeddings where `tie_word_embeddings` says so.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.dense = Linear(width, width, activation=get_activation(config.hidden_act))
        self.norm = LayerNorm(width, eps=config.layer_norm_eps)
        self.decoder = Linear(width, config.vocab_size)

    def forward(self, hidden_MD: Tensor) -> Tensor:
        """Hidden states of any rows, `[M, D]`, to logits `[M, V]`."""
        logits_MV: Tensor = self.decoder(self.norm(self.dense(hidden_MD)))
        return logits_MV

    def prepack(self) -> None:
        """Prepack for inference, the decoder apart from the word embeddings and with logits in float32 in any dtype.

        Logits of bfloat16 are 0.06 apart where they are largest, which reorders candidates that are nearly as good.
        """
        self.dense.prepack()
        self.decoder.prepack(results=torch.float32)


class NextSentenceHead(nn.Module):
    """Two logits from the pooled vector: index 0 is "the second half follows the first"."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.classifier = Linear(config.hidden_size, 2)

    def forward(self, pooled_ND: Tensor) -> Tensor:
        """`[N, D]` to `[N, 2]`."""
        logits_N2: Tensor = self.classifier(pooled_ND)
        return logits_N2
