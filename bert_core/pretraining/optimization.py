"""AdamW as BERT uses it, and its learning rate over a run."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from torch.optim import AdamW

from bert_core.model import BertForPreTraining


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """learning_rate: of the encoder, at its highest. head_learning_rate: of pooler and heads; None is the same.

    warm_up: share of the run over which the rate rises from 0, linearly, before it falls to 0.
    weight_decay: not of biases and LayerNorms. clip: the most that the gradient's norm may be; 0 does not clip.
    """

    learning_rate: float = 1e-4
    head_learning_rate: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    warm_up: float = 0.1
    clip: float = 1.0

    def factor(self, progress: float) -> float:
        """Of the learning rates, for the share of the run that is done, 0 to 1."""
        progress = min(max(progress, 0.0), 1.0)
        if progress < self.warm_up:
            return progress / self.warm_up
        return (1 - progress) / (1 - self.warm_up) if self.warm_up < 1 else 1.0


def make_optimizer(model: BertForPreTraining, options: Optimization) -> AdamW:
    """Each group has its highest rate as `highest_lr`, for `set_learning_rate`."""
    heads = [part for part in (model.bert.pooler, model.mlm, model.nsp) if part is not None]
    # The decoder's weight may be that of the word embeddings, which belong to the encoder.
    encoder = {id(parameter) for part in (model.bert.embeddings, model.bert.encoder) for parameter in part.parameters()}
    of_heads = {id(parameter) for part in heads for parameter in part.parameters()} - encoder
    spared = {id(parameter) for parameter in _spared(model)}
    head_rate = options.learning_rate if options.head_learning_rate is None else options.head_learning_rate
    groups = []
    for in_heads, rate in ((False, options.learning_rate), (True, head_rate)):
        for decays in (True, False):
            parameters = [
                parameter
                for parameter in model.parameters()
                if (id(parameter) in of_heads) == in_heads and (id(parameter) not in spared) == decays
            ]
            if parameters:
                decay = options.weight_decay if decays else 0.0
                groups.append({"params": parameters, "lr": rate, "highest_lr": rate, "weight_decay": decay})
    return AdamW(groups, betas=options.betas, eps=options.epsilon, fused=True)


def _spared(model: nn.Module) -> list[nn.Parameter]:
    found = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias" or isinstance(module, nn.LayerNorm):
                found.append(parameter)
    return found


def set_learning_rate(optimizer: AdamW, *, factor: float) -> None:
    """A share of each group's highest rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["highest_lr"] * factor
