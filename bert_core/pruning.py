"""Remove attention heads for good (Michel et al. 2019, https://arxiv.org/abs/1905.10650)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from bert_core.attention import SelfAttention
from bert_core.checkpoint_files import shown_value
from bert_core.config import BertConfig
from bert_core.linear import Linear


def pruned_config(config: BertConfig, heads: Mapping[int, Iterable[int]]) -> BertConfig:
    """The config with these heads, by their original numbers, pruned besides those that already are.

    Raises:
        ValueError: a layer or head that does not exist, a layer's last head, or no mapping to collections of numbers.
    """
    if not isinstance(heads, Mapping):
        raise ValueError(f"heads: {shown_value(heads)} is not a mapping of layer number to head numbers")
    merged = {layer: set(pruned) for layer, pruned in config.pruned_heads.items()}
    for layer, more in heads.items():
        numbers = list(more) if isinstance(more, Iterable) else [None]
        if not all(type(number) is int for number in numbers):
            raise ValueError(f"heads[{shown_value(layer)}]: {shown_value(more)} is not a list of head numbers")
        merged.setdefault(layer, set()).update(numbers)
    pruned = {layer: tuple(sorted(numbers)) for layer, numbers in merged.items() if numbers}
    return dataclasses.replace(config, pruned_heads=pruned)


def prune_attention(attention: SelfAttention, *, kept_heads: list[int]) -> None:
    """Slice the Q, K and V rows and the output columns down to the kept heads, original numbers."""
    width, before = attention.head_width, attention.kept_heads
    columns = torch.cat([torch.arange(width) + before.index(head) * width for head in kept_heads])
    inner = len(before) * width
    attention.qkv = _select(attention.qkv, rows=torch.cat([columns + block * inner for block in range(3)]))
    attention.output = _select(attention.output, columns=columns)
    attention.kept_heads = list(kept_heads)


def _select(linear: Linear, *, rows: torch.Tensor | None = None, columns: torch.Tensor | None = None) -> Linear:
    weight, bias = linear.weight.detach(), linear.bias.detach()
    if rows is not None:
        weight, bias = weight[rows.to(weight.device)], bias[rows.to(weight.device)]
    if columns is not None:
        weight = weight[:, columns.to(weight.device)]
    with torch.device("meta"):
        smaller = Linear(weight.shape[1], weight.shape[0], activation=linear.activation)
    smaller.weight = nn.Parameter(weight.clone(), requires_grad=linear.weight.requires_grad)
    smaller.bias = nn.Parameter(bias.clone(), requires_grad=linear.bias.requires_grad)
    return smaller.train(linear.training)
