"""Activation functions by the names that `hidden_act` takes in a `config.json`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import torch.nn.functional as F
from torch import Tensor

Activation: TypeAlias = Callable[[Tensor], Tensor]


def identity(hidden: Tensor) -> Tensor:
    """The input itself: no activation."""
    return hidden


gelu_tanh: Activation = partial(F.gelu, approximate="tanh")

# Gaussian Error Linear Units, Hendrycks and Gimpel 2016: "gelu" is the exact form with erf, the others its tanh
# approximation. The two differ by up to 4.7e-4, so they are never mixed up here.
ACTIVATIONS = MappingProxyType(
    {
        "gelu": F.gelu,
        "gelu_new": gelu_tanh,
        "gelu_pytorch_tanh": gelu_tanh,
        "gelu_fast": gelu_tanh,
        "relu": F.relu,
        "relu6": F.relu6,
        "silu": F.silu,
        "swish": F.silu,
        "tanh": F.tanh,
        "sigmoid": F.sigmoid,
        "mish": F.mish,
        "leaky_relu": F.leaky_relu,
        "linear": identity,
    }
)


def get_activation(hidden_act: str | Activation | None) -> Activation:
    """The function for a `hidden_act`; None and "linear" are no activation, a callable is returned as it is.

    Raises:
        ValueError: no activation of that name.
    """
    if hidden_act is None:
        return identity
    if callable(hidden_act):
        return hidden_act
    if hidden_act not in ACTIVATIONS:
        raise ValueError(f"hidden_act: {hidden_act!r} is not one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[hidden_act]
