"""The one way in which tests compare with `transformers`: a model of theirs with the weights of ours."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from transformers import BertConfig as ReferenceConfig
from transformers import BertForMaskedLM, BertForPreTraining

from bert_core.config import BertConfig
from bert_core.model import BertForPreTraining as OurModel
from bert_core.weight_names import canonical_targets, ignored_names, second_copies


class Reference(Protocol):
    """What the tests use of a `transformers` model."""

    def __call__(self, input_ids: Tensor | None = None, **arguments: Any) -> Any: ...

    def named_parameters(self) -> Any: ...


def reference_of(model: OurModel) -> Reference:
    """The `transformers` model with equal weights, in eval mode: for masked LM alone where ours has no pooler."""
    kind = BertForPreTraining if model.heads.pooler else BertForMaskedLM
    reference = kind(_reference_config(model.config)).eval()
    ours = model.state_dict()
    targets = canonical_targets(model.config, heads=model.heads)
    stored = {name: target.part(ours[target.parameter]) for name, target in targets.items()}
    result = reference.load_state_dict(stored, strict=False)
    not_needed = ignored_names(model.config, heads=model.heads) | set(second_copies(model.config, heads=model.heads))
    assert set(result.missing_keys) <= not_needed
    assert not result.unexpected_keys
    answer: Reference = reference
    return answer


def gradient_gaps(model: OurModel, reference: Reference) -> dict[str, float]:
    """Largest absolute difference of the gradients, for every tensor of the checkpoint."""
    theirs = {name: parameter.grad for name, parameter in reference.named_parameters()}
    ours = dict(model.named_parameters())
    gaps = {}
    for name, target in canonical_targets(model.config, heads=model.heads).items():
        gradient = ours[target.parameter].grad
        assert gradient is not None, target.parameter
        gaps[name] = float((target.part(gradient) - theirs[name]).abs().max())
    return gaps


def _reference_config(config: BertConfig) -> ReferenceConfig:
    assert config.model_type == "bert", "transformers cannot represent this model"
    values = {name: value for name, value in config.to_dict().items() if name != "model_type"}
    reference = ReferenceConfig(**values)
    # Attention weights come from the eager path alone.
    reference._attn_implementation = "eager"
    return reference


def kept_gap(ours: Tensor, theirs: Tensor, mask: Tensor | None) -> float:
    """Largest absolute difference over the rows `[B, L, …]` with mask 1."""
    assert ours.shape == theirs.shape
    difference = (ours.detach() - theirs.detach()).abs()
    if mask is not None:
        difference = difference[mask.bool()]
    return float(difference.max())
