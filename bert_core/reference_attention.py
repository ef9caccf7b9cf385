"""Attention by `torch.nn.MultiheadAttention`, to compare ours with.

Axes: T packed tokens, N sequences of a run, L their length, D hidden, H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bert_core.attention_options import AttentionOptions
from bert_core.config import BertConfig
from bert_core.linear import Linear
from bert_core.packing import PackedTokens


class TorchMultiHead:
    """`torch.nn.MultiheadAttention` over the weights of a `SelfAttention`: a reference, never served."""

    def __init__(self, config: BertConfig) -> None:
        # On the meta device: the module has the code, the weights are handed in at each call.
        self.attention = nn.MultiheadAttention(
            config.hidden_size,
            config.num_attention_heads,
            dropout=config.attention_probs_dropout_prob,
            batch_first=True,
            device="meta",
        )

    def __call__(
        self, hidden_TD: Tensor, packed: PackedTokens, *, qkv: Linear, output: Linear, options: AttentionOptions
    ) -> tuple[Tensor, list[Tensor]]:
        """Attend, as `SelfAttention.forward` does for all rows.

        Raises:
            ValueError: a head mask, which `torch.nn.MultiheadAttention` does not have.
        """
        if options.head_mask_H is not None:
            raise ValueError("head_mask: not with use_torch_multi_head, which has no place for it")
        self.attention.train(qkv.training)
        parameters = {
            "in_proj_weight": qkv.weight,
            "in_proj_bias": qkv.bias,
            "out_proj.weight": output.weight,
            "out_proj.bias": output.bias,
        }
        contexts, weights = [], []
        for run in packed.runs:
            hidden_NLD = hidden_TD[run.tokens].unflatten(0, (run.count, run.length))
            mask = options.pair_mask_NLL
            blocked = None if mask is None else (~mask[run.sequences]).repeat_interleave(self.attention.num_heads, 0)
            context_NLD, weights_NHLL = functional_call(
                self.attention,
                parameters,
                (hidden_NLD, hidden_NLD, hidden_NLD),
                {"attn_mask": blocked, "need_weights": options.weights, "average_attn_weights": False},
            )
            contexts.append(context_NLD.flatten(0, 1))
            weights.append(weights_NHLL)
        return torch.cat(contexts), weights if options.weights else []
