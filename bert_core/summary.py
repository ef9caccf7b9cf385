"""What a model is: its size, whether it can still be changed, and all of it in one line."""

from __future__ import annotations

from torch import nn

from bert_core.config import BertConfig
from bert_core.linear import Linear


def count_parameters(module: nn.Module) -> int:
    """How many numbers are learned; a shared matrix counts once."""
    return sum(parameter.numel() for parameter in module.parameters())


def is_prepacked(module: nn.Module) -> bool:
    """Whether a linear layer in it has given up its plain weight for one that only inference can use."""
    return any(isinstance(part, Linear) and part.weight is None for part in module.modules())


def describe(module: nn.Module, *, config: BertConfig, heads: tuple[str, ...]) -> str:
    """One line about a model: its sizes, heads, device and dtype."""
    parameter = next(module.parameters())
    return (
        f"{type(module).__name__}({config.num_hidden_layers} layers, {config.hidden_size} wide, "
        f"{config.num_attention_heads} attention heads, {count_parameters(module):,} parameters, "
        f"heads: {' '.join(heads) or 'none'}, {str(parameter.dtype).removeprefix('torch.')} on {parameter.device})"
    )
