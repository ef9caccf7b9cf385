"""The values that a model starts from before training."""

from __future__ import annotations

import torch
from torch import nn

from bert_core.config import BertConfig


def initialize(module: nn.Module, *, config: BertConfig) -> None:
    """BERT's initialisation: normal weights of `initializer_range`, biases and the padding row zero, norms one."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=config.initializer_range)
        if isinstance(part, nn.Linear | nn.LayerNorm):
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            with torch.no_grad():
                part.weight[part.padding_idx].zero_()
