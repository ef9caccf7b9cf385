"""The stack of Transformer layers, over packed tokens.

Axes: T packed tokens, R wanted rows, D hidden, F feed-forward, N sequences, H heads, Q queries, L length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.activations import get_activation
from bert_core.attention import SelfAttention
from bert_core.attention_options import AttentionOptions
from bert_core.config import BertConfig
from bert_core.layer_norm import LayerNorm
from bert_core.linear import Linear
from bert_core.onednn_product import padded_rows
from bert_core.packing import PackedTokens, WantedRows
from bert_core.tile_encoder import TileEncoder, TileLayer
from bert_core.tiles import tiles


class FeedForward(nn.Module):
    """Two linear layers with the activation between them, row by row.

    `chunk_size_feed_forward` bounds how many rows of the wide middle exist at once; results are equal.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.up = Linear(config.hidden_size, config.intermediate_size, activation=get_activation(config.hidden_act))
        self.down = Linear(config.intermediate_size, config.hidden_size)
        self.chunk_rows = config.chunk_size_feed_forward

    def forward(self, hidden_TD: Tensor, *, addend: Tensor | None = None) -> Tensor:
        """`[T, D]` to `[T, D]`, plus `addend` `[T, D]` if there is one."""
        if not 0 < self.chunk_rows < hidden_TD.shape[0]:
            return self._rows(hidden_TD, addend=addend)
        chunks = hidden_TD.split(self.chunk_rows)
        addends = [None] * len(chunks) if addend is None else addend.split(self.chunk_rows)
        return torch.cat([self._rows(rows, addend=more) for rows, more in zip(chunks, addends, strict=True)])

    def _rows(self, rows_XD: Tensor, *, addend: Tensor | None) -> Tensor:
        changed_XD: Tensor = self.down(self.up(rows_XD), addend=addend)
        return changed_XD


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with a residual sum and a LayerNorm.

    Post-norm (BERT) normalises the sum; pre-norm normalises what goes into the sub-layer.
    """

    def __init__(self, config: BertConfig, *, layer: int) -> None:
        super().__init__()
        self.attention = SelfAttention(config, layer=layer)
        self.attention_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = config.hidden_dropout_prob
        self.pre_norm = config.norm_placement == "pre"

    def forward(
        self,
        hidden_TD: Tensor,
        packed: PackedTokens,
        *,
        wanted: WantedRows | None = None,
        options: AttentionOptions | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """`[T, D]` to `[R, D]`, and the attention weights as `SelfAttention.forward` gives them."""
        seen_TD = self.attention_norm(hidden_TD) if self.pre_norm else hidden_TD
        residual_RD = hidden_TD if wanted is None else hidden_TD[wanted.rows_R]
        # Without dropout between them, the product and the residual sum are one step.
        addend = None if self.drops_out else residual_RD
        hidden_RD, weights = self.attention(seen_TD, packed, wanted=wanted, options=options, addend=addend)
        if self.drops_out:
            hidden_RD = residual_RD + F.dropout(hidden_RD, self.dropout)
        if self.pre_norm:
            return self._feed_forward(self.feed_forward_norm(hidden_RD), residual_RD=hidden_RD), weights
        hidden_RD = self.attention_norm(hidden_RD)
        return self.feed_forward_norm(self._feed_forward(hidden_RD, residual_RD=hidden_RD)), weights

    def on_tiles(self) -> TileLayer | None:
        """What the kernel for all layers needs of this one, once prepacked; None where it cannot serve."""
        attention, feed_forward = self.attention, self.feed_forward
        device = self.attention_norm.weight.device
        if self.pre_norm or feed_forward.chunk_rows or not attention.can_take_tiles(torch.bfloat16, device=device):
            return None
        linears = {**attention.linears(), "up": feed_forward.up, "down": feed_forward.down}
        both_norms = {"attention_norm": self.attention_norm, "feed_forward_norm": self.feed_forward_norm}
        products = {name: product for name, linear in linears.items() if (product := linear.on_tiles())}
        norms = {name: kernel for name, norm in both_norms.items() if (kernel := norm.on_tiles())}
        if products.keys() != linears.keys() or norms.keys() != both_norms.keys():
            return None
        return TileLayer(products=products, norms=norms, heads=len(attention.kept_heads), width=attention.head_width)

    @property
    def drops_out(self) -> bool:
        """Whether dropout has an effect."""
        return self.training and self.dropout > 0

    def _feed_forward(self, seen_RD: Tensor, *, residual_RD: Tensor) -> Tensor:
        if self.drops_out:
            return residual_RD + F.dropout(self.feed_forward(seen_RD), self.dropout)
        sum_RD: Tensor = self.feed_forward(seen_RD, addend=residual_RD)
        return sum_RD


@dataclass(frozen=True, kw_only=True, eq=False)
class EncoderOutput:
    """hidden_RD: the last layer. hidden_states: `[T, D]` before the first layer and after each, if asked for.

    attention_weights: for each layer, for each run of the packed tokens, `[N, H, Q, L]`, if asked for.
    """

    hidden_RD: Tensor
    hidden_states: tuple[Tensor, ...] = ()
    attention_weights: tuple[list[Tensor], ...] = ()


class Encoder(nn.Module):
    """`num_hidden_layers` layers; the last one works for the wanted rows only."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config, layer=layer) for layer in range(config.num_hidden_layers))
        self._on_tiles: TileEncoder | None = None

    def prepack(self) -> None:
        """Use the kernel for all layers, if it can serve them; once their parts are prepacked.

        It runs none of the layers' hooks.
        """
        served = [layer.on_tiles() for layer in self.layers if isinstance(layer, EncoderLayer)]
        layers, kernels = [layer for layer in served if layer is not None], tiles()
        if layers and len(layers) == len(self.layers) and kernels is not None:
            self._on_tiles = TileEncoder(layers, kernels)

    @property
    def wants_padded_rows(self) -> bool:
        """As `Linear.wants_padded_rows`."""
        first = next(iter(self.layers), None)
        return isinstance(first, EncoderLayer) and first.feed_forward.up.wants_padded_rows

    def forward(
        self,
        hidden_TD: Tensor,
        packed: PackedTokens,
        *,
        wanted: WantedRows | None = None,
        head_masks: Tensor | None = None,
        options: AttentionOptions | None = None,
        keep_hidden_states: bool = False,
    ) -> EncoderOutput:
        """Run the layers, on rows of zeros below the tokens too where that is faster (`product_rows`).

        Args:
            hidden_TD: the embeddings, `[T, D]`.
            packed: where the sequences lie.
            wanted: rows of the last layer to compute; None is all of them.
            head_masks: `[layers, H]`, factors for the attention probabilities.
            options: what attention shall do in every layer.
            keep_hidden_states: give the states of every layer back.

        Raises:
            ValueError: wanted rows together with hidden states, attention weights or a pair mask, which need all rows.
        """
        options = options or AttentionOptions()
        if wanted is not None and (keep_hidden_states or options.weights or options.pair_mask_NLL is not None):
            raise ValueError("wanted rows: hidden states, attention weights and a pair mask need all rows")
        plain = head_masks is None and not options.explicit and not keep_hidden_states and not self.training
        if self._on_tiles is not None and plain:
            return EncoderOutput(hidden_RD=self._on_tiles(hidden_TD, packed, wanted=wanted))
        tokens = hidden_TD.shape[0]
        if self.wants_padded_rows:
            hidden_TD = padded_rows(hidden_TD)  # once here, instead of in every product
        states, weights = [hidden_TD[:tokens]], []
        for number, layer in enumerate(self.layers):
            last = number == len(self.layers) - 1
            if head_masks is not None:
                options = replace(options, head_mask_H=head_masks[number])
            hidden_TD, layer_weights = layer(hidden_TD, packed, wanted=wanted if last else None, options=options)
            if keep_hidden_states:
                states.append(hidden_TD[:tokens])
            weights.append(layer_weights)
        if not self.layers and wanted is not None:
            hidden_TD = hidden_TD[wanted.rows_R]
        return EncoderOutput(
            hidden_RD=hidden_TD[:tokens] if wanted is None else hidden_TD,
            hidden_states=tuple(states) if keep_hidden_states else (),
            attention_weights=tuple(weights) if options.weights else (),
        )
