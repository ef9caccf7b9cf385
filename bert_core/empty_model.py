"""Models without values, to be filled from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining


class _WithoutRandomNumbers(TorchFunctionMode):
    """Leaves out `normal_`, which has nothing to fill on the meta device, yet makes PyTorch import its compiler."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        arguments = kwargs or {}
        return arguments["tensor"] if func is nn.init.normal_ else func(*args, **arguments)


def empty_model(config: BertConfig, *, heads: Heads) -> BertForPreTraining:
    """A model on the meta device: shapes and no memory."""
    with torch.device("meta"), _WithoutRandomNumbers():
        return BertForPreTraining(config, heads=heads)
