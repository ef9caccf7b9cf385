"""Token ids to vectors: token, position and segment embeddings, summed and normalised.

Axes: T packed tokens, D hidden, V vocabulary, P positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.layer_norm import LayerNorm
from bert_core.packing import PackedTokens


class SinusoidalPositions(nn.Module):
    """Fixed positions (Vaswani et al. 2017, section 3.5): sines in even columns, cosines in odd ones.

    The table is made in float64 and is not part of a checkpoint.
    """

    table_PD: Tensor

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.positions = positions
        self.width = width
        self.register_buffer("table_PD", self._table().to(torch.get_default_dtype()), persistent=False)

    def _table(self) -> Tensor:
        columns = torch.arange(0, self.width, 2, dtype=torch.float64)
        angles = torch.arange(self.positions, dtype=torch.float64)[:, None] / 10000.0 ** (columns / self.width)
        table_PD = torch.empty(self.positions, self.width, dtype=torch.float64)
        table_PD[:, 0::2] = angles.sin()
        table_PD[:, 1::2] = angles.cos()[:, : self.width // 2]
        return table_PD

    def reset_buffer(self, *, device: torch.device, dtype: torch.dtype) -> None:
        """Make the table again: a model that was built on the meta device has none."""
        with torch.device("cpu"):
            self.table_PD = self._table().to(device=device, dtype=dtype)

    def forward(self, positions_T: Tensor) -> Tensor:
        """int64 `[T]` to `[T, D]`."""
        return self.table_PD[positions_T]


class Embeddings(nn.Module):
    """The sum of token, position and segment embeddings, normalised, `[T, D]`.

    With relative positions there is no position term here: the attention scores carry it.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.token = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.segment = nn.Embedding(config.type_vocab_size, width)
        self.position: nn.Module | None
        if config.position_embedding_type == "absolute":
            self.position = nn.Embedding(config.max_position_embeddings, width)
        elif config.position_embedding_type == "sinusoidal":
            self.position = SinusoidalPositions(config.max_position_embeddings, width)
        else:
            self.position = None
        self.norm = LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = config.hidden_dropout_prob

    def forward(self, packed: PackedTokens) -> Tensor:
        """Embed packed tokens, giving `[T, D]`."""
        if packed.embeds_TD is not None:
            hidden_TD = packed.embeds_TD
        else:
            assert packed.ids_T is not None
            hidden_TD = self.token(packed.ids_T)
        hidden_TD = hidden_TD + self.segment(packed.segments_T)
        if self.position is not None:
            hidden_TD = hidden_TD + self.position(packed.positions_T)
        return F.dropout(self.norm(hidden_TD), self.dropout, self.training)
