"""Multi-head self-attention over packed tokens (Vaswani et al. 2017; Devlin et al. 2018).

Axes: T packed tokens, R wanted rows, N sequences of a run, L their length, Q queries of each, D hidden, H heads that
are kept, K head width, A = H * K, P positions.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.attention_options import AttentionOptions
from bert_core.config import BertConfig
from bert_core.linear import Linear
from bert_core.packing import PackedTokens, Run, WantedRows, runs_of
from bert_core.reference_attention import TorchMultiHead
from bert_core.tile_attention import TileAttention, tile_attention
from bert_core.tiles import NUMBERS_IN_A_ROW

AttentionKernel: TypeAlias = Literal["varlen", "tiles", "sdpa"]

HALF_DTYPES = (torch.float16, torch.bfloat16)

VARLEN_MAX_HEAD_WIDTH = 256
VARLEN_MIN_CAPABILITY = (8, 0)

LONGEST_WRITTEN_OUT = 192
"""Up to so many tokens attention is written out where a CPU trains in half precision.

The fused kernel goes back by many small products. A step with 128 tokens a sequence takes 1.4 times as long by it, one
with 256 as long, one with 512 less long.
"""


class SelfAttention(nn.Module):
    """Scaled dot-product attention within each sequence, and its output projection.

    One matrix product makes queries, keys and values: rows of `qkv` are all Q, then all K, then all V.
    """

    def __init__(self, config: BertConfig, *, layer: int) -> None:
        super().__init__()
        self.kept_heads = config.kept_heads(layer)
        self.head_width = config.head_width
        self.dropout = config.attention_probs_dropout_prob
        self.max_positions = config.max_position_embeddings
        self.position_kind = config.position_embedding_type
        inner = len(self.kept_heads) * self.head_width
        self.qkv = Linear(config.hidden_size, 3 * inner)
        self.output = Linear(inner, config.hidden_size)
        self.distance: nn.Embedding | None = None
        if config.has_relative_positions:
            self.distance = nn.Embedding(2 * self.max_positions - 1, self.head_width)
        self.reference = TorchMultiHead(config) if config.use_torch_multi_head else None
        # `qkv` in two parts, once prepacked: a layer that answers for some rows needs fewer queries than keys.
        self.query: Linear | None = None
        self.key_value: Linear | None = None

    def forward(
        self,
        hidden_TD: Tensor,
        packed: PackedTokens,
        *,
        wanted: WantedRows | None = None,
        options: AttentionOptions | None = None,
        addend: Tensor | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Attend.

        Args:
            hidden_TD: `[T, D]`; rows below those of the tokens are padding, attended by nothing.
            packed: where the sequences lie.
            wanted: the rows to answer for; None is all.
            options: what only the explicit softmax can do.
            addend: `[R, D]`, added to the result.

        Raises:
            ValueError: wanted rows or a head mask with `use_torch_multi_head`.

        Returns:
            `[R, D]`, and for each run of `packed` the weights `[N, H, Q, L]` if the options ask for them.
        """
        options = options or AttentionOptions()
        if self.reference is not None:
            if wanted is not None:
                raise ValueError("wanted rows: not with use_torch_multi_head, which computes all rows")
            attended_TD, weights = self.reference(hidden_TD, packed, qkv=self.qkv, output=self.output, options=options)
            return attended_TD if addend is None else attended_TD + addend, weights
        q_RHK, k_THK, v_THK = self._project(hidden_TD, wanted=wanted)
        tokens = len(packed.positions_T)
        padding = len(hidden_TD) - tokens if wanted is None else 0
        if self._takes_varlen(q_RHK, options=options):
            parts = q_RHK[: len(q_RHK) - padding], k_THK[:tokens], v_THK[:tokens]
            contexts, weights = [_varlen_attention(*parts, packed=packed, wanted=wanted).flatten(1)], []
        elif (attend := self._tiles_for(q_RHK, options=options)) is not None:
            offsets_N1 = packed.offsets_N1 if wanted is None else wanted.offsets_N1
            contexts = [attend(q_RHK, k_THK, v_THK, query_offsets_N1=offsets_N1, key_offsets_N1=packed.offsets_N1)]
            weights, padding = [], 0
        else:
            contexts, weights = self._attend_by_runs(q_RHK, k_THK, v_THK, packed, wanted=wanted, options=options)
        if padding:
            contexts.append(hidden_TD.new_zeros(padding, self.output.in_features))
        context_RA = contexts[0] if len(contexts) == 1 else torch.cat(contexts)
        return self.output(context_RA, addend=addend), weights if options.weights else []

    def _attend_by_runs(
        self,
        q_RHK: Tensor,
        k_THK: Tensor,
        v_THK: Tensor,
        packed: PackedTokens,
        *,
        wanted: WantedRows | None,
        options: AttentionOptions,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """For each run its context `[N * Q, A]`; and its weights `[N, H, Q, L]` where they are written out."""
        runs = packed.runs if wanted is None else runs_of(packed.lengths, queries=wanted.counts)
        written_out = options.explicit or self.distance is not None
        trains_half_on_cpu = q_RHK.requires_grad and q_RHK.device.type == "cpu" and q_RHK.dtype in HALF_DTYPES
        positions_R = packed.positions_T if wanted is None else packed.positions_T[wanted.rows_R]
        contexts, weights = [], []
        for run in runs:
            q_NHQK = _block(q_RHK, run.query_rows, shape=(run.count, run.queries))
            k_NHLK = _block(k_THK, run.tokens, shape=(run.count, run.length))
            v_NHLK = _block(v_THK, run.tokens, shape=(run.count, run.length))
            if written_out or (trains_half_on_cpu and run.length <= LONGEST_WRITTEN_OUT):
                weights_NHQL = self._weights(
                    q_NHQK,
                    k_NHLK,
                    run,
                    query_positions_NQ=positions_R[run.query_rows].view(run.count, run.queries),
                    key_positions_NL=packed.positions_T[run.tokens].view(run.count, run.length),
                    options=options,
                )
                context_NHQK = weights_NHQL @ v_NHLK
                weights.append(weights_NHQL)
            else:
                dropout = self.dropout if self.training else 0.0
                context_NHQK = F.scaled_dot_product_attention(q_NHQK, k_NHLK, v_NHLK, dropout_p=dropout)
            contexts.append(context_NHQK.transpose(1, 2).reshape(-1, self.output.in_features))
        return contexts, weights

    def _project(self, hidden_TD: Tensor, *, wanted: WantedRows | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[R, H, K]` of the wanted rows, keys and values `[T, H, K]` of all tokens."""
        heads = len(self.kept_heads), self.head_width
        if wanted is None and self.query is None:
            q_THK, k_THK, v_THK = self.qkv(hidden_TD).unflatten(1, (3, *heads)).unbind(1)
            return q_THK, k_THK, v_THK
        wanted_RD = hidden_TD if wanted is None else hidden_TD[wanted.rows_R]
        if self.query is not None and self.key_value is not None:
            q_RA, kv_T2A = self.query(wanted_RD), self.key_value(hidden_TD)
        else:
            inner = heads[0] * heads[1]
            q_RA = self.qkv.outputs(wanted_RD, slice(0, inner))
            kv_T2A = self.qkv.outputs(hidden_TD, slice(inner, None))
        k_THK, v_THK = kv_T2A.unflatten(1, (2, *heads)).unbind(1)
        return q_RA.unflatten(1, heads), k_THK, v_THK

    def linears(self) -> dict[str, Linear]:
        """Its linear layers: `query_key_value` or, once split, `query` and `key_value`; and `output`."""
        if self.query is not None and self.key_value is not None:
            return {"query": self.query, "key_value": self.key_value, "output": self.output}
        return {"query_key_value": self.qkv, "output": self.output}

    def split_query(self) -> None:
        """Hold the projection in two parts, queries apart from keys and values, for a layer that answers for some rows.

        Before `Linear.prepack`, which has no slices; for inference alone.
        """
        inner = len(self.kept_heads) * self.head_width
        self.query, self.key_value = self.qkv.part(slice(0, inner)), self.qkv.part(slice(inner, None))
        del self.qkv

    def can_take_varlen(self, dtype: torch.dtype, *, device: torch.device) -> bool:
        """Whether PyTorch's flash attention over offsets has a kernel: half precision on an Ampere or newer GPU."""
        return (
            device.type == "cuda"
            and dtype in HALF_DTYPES
            and self.head_width <= VARLEN_MAX_HEAD_WIDTH
            and self.head_width % 8 == 0
            and self.distance is None
            and self.reference is None
            and _is_ampere_or_newer(device)
        )

    def _takes_varlen(self, q_RHK: Tensor, *, options: AttentionOptions) -> bool:
        """Whether a call can be served by attention over offsets, which has neither dropout nor an explicit softmax."""
        if options.explicit or (self.training and self.dropout):
            return False
        return self.can_take_varlen(q_RHK.dtype, device=q_RHK.device)

    def can_take_tiles(self, dtype: torch.dtype, *, device: torch.device) -> bool:
        """Whether the kernel for a CPU's matrix tiles can serve: bfloat16, and heads that fill rows of a tile."""
        return (
            device.type == "cpu"
            and dtype == torch.bfloat16
            and self.head_width % NUMBERS_IN_A_ROW == 0
            and self.distance is None
            and self.reference is None
            and tile_attention() is not None
        )

    def _tiles_for(self, q_RHK: Tensor, *, options: AttentionOptions) -> TileAttention | None:
        """The kernel for tiles where it can serve a call: for inference, without an explicit softmax."""
        if options.explicit or q_RHK.requires_grad or (self.training and self.dropout):
            return None
        return tile_attention() if self.can_take_tiles(q_RHK.dtype, device=q_RHK.device) else None

    def kernel(self, dtype: torch.dtype, *, device: torch.device) -> AttentionKernel:
        """What serves most calls: `varlen` and `tiles` as above, `sdpa` is PyTorch's over runs of equal length."""
        if self.can_take_varlen(dtype, device=device):
            return "varlen"
        return "tiles" if self.can_take_tiles(dtype, device=device) else "sdpa"

    def _weights(
        self,
        q_NHQK: Tensor,
        k_NHLK: Tensor,
        run: Run,
        *,
        query_positions_NQ: Tensor,
        key_positions_NL: Tensor,
        options: AttentionOptions,
    ) -> Tensor:
        """Attention probabilities of a run, `[N, H, Q, L]`, written out: where no kernel does it, or not as fast."""
        # Queries are scaled, not scores, which are more numbers.
        scale = self.head_width**-0.5
        scores_NHQL = (q_NHQK * scale) @ k_NHLK.mT
        if self.distance is not None:
            distance_NQL = query_positions_NQ[:, :, None] - key_positions_NL[:, None, :]
            scores_NHQL = scores_NHQL + scale * self._relative_scores(q_NHQK, k_NHLK, distance_NQL)
        return self._softmax(scores_NHQL, run, options=options)

    def _relative_scores(self, q_NHQK: Tensor, k_NHLK: Tensor, distance_NQL: Tensor) -> Tensor:
        """What relative positions add to the scores before scaling, `[N, H, Q, L]`."""
        assert self.distance is not None
        heads = q_NHQK.shape[1]
        table_KP = self.distance.weight.mT
        index_NHQL = (distance_NQL + self.max_positions - 1)[:, None].expand(-1, heads, -1, -1)
        added_NHQL = (q_NHQK @ table_KP).gather(-1, index_NHQL)
        if self.position_kind == "relative_key_query":
            added_NHQL = added_NHQL + (k_NHLK @ table_KP).gather(-1, index_NHQL.mT).mT
        return added_NHQL

    def _softmax(self, scores_NHQL: Tensor, run: Run, *, options: AttentionOptions) -> Tensor:
        if options.pair_mask_NLL is not None:
            scores_NHQL = scores_NHQL.masked_fill(~options.pair_mask_NLL[run.sequences, None], -torch.inf)
        # In float32 at least: half precision cannot hold the sum of many small exponentials.
        sum_dtype = torch.promote_types(scores_NHQL.dtype, torch.float32)
        weights_NHQL = scores_NHQL.softmax(-1, dtype=sum_dtype).to(scores_NHQL.dtype)
        weights_NHQL = F.dropout(weights_NHQL, self.dropout, self.training)
        if options.head_mask_H is not None:
            weights_NHQL = weights_NHQL * options.head_mask_H[self.kept_heads, None, None]
        return weights_NHQL

    def extra_repr(self) -> str:
        """Shown by `repr`."""
        return f"heads={len(self.kept_heads)}, head_width={self.head_width}, positions={self.position_kind}"


@cache
def _is_ampere_or_newer(device: torch.device) -> bool:
    """Asked once for a device: PyTorch looks its properties up anew each time."""
    return torch.cuda.get_device_capability(device) >= VARLEN_MIN_CAPABILITY


def _block(rows_XHK: Tensor, rows: slice, *, shape: tuple[int, int]) -> Tensor:
    """A run's rows as `[N, H, X, K]`, a view; `shape` is `(N, X)`.

    One operation in place of a slice, a view and a transpose: each gives up the interpreter and waits to get it back.
    """
    count, length = shape
    _, heads, width = rows_XHK.shape
    by_row, by_head, by_number = rows_XHK.stride()
    return rows_XHK.as_strided(
        (count, heads, length, width),
        (length * by_row, by_head, by_row, by_number),
        rows_XHK.storage_offset() + rows.start * by_row,
    )


def _varlen_attention(
    q_RHK: Tensor, k_THK: Tensor, v_THK: Tensor, *, packed: PackedTokens, wanted: WantedRows | None
) -> Tensor:
    """Flash attention over offsets: no padding, no grouping; queries may be fewer than keys. `[R, H, K]`."""
    # Imported here: torch loads its CUDA extension with it, which a CPU process never needs.
    from torch.nn.attention.varlen import varlen_attn

    most_queries = packed.longest if wanted is None else max(wanted.counts)
    offsets = packed.offsets_N1 if wanted is None else wanted.offsets_N1
    context_RHK = varlen_attn(q_RHK, k_THK, v_THK, offsets, packed.offsets_N1, most_queries, packed.longest)
    assert isinstance(context_RHK, Tensor)
    return context_RHK
