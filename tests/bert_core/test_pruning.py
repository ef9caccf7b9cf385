from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from bert_core.model import BertForPreTraining
from tests.bert_core.oracle import Oracle, gap
from tests.tiny import masks, random_ids, random_packed, random_segments, tiny_config, tiny_model

KINDS = ("absolute", "sinusoidal", "relative_key", "relative_key_query")
PRUNED = {0: [2, 0], 2: [1]}
FACTORS = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1]], dtype=torch.float64)


def run(model: BertForPreTraining, **arguments: Any) -> list[torch.Tensor]:
    mask = masks()["holes"]
    output = model.bert(random_ids(), attention_mask=mask, token_type_ids=random_segments(), **arguments)
    assert output.pooler_output is not None
    return [output.last_hidden_state, output.pooler_output, *(output.hidden_states or ())]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_pruning_equals_masking_those_heads(kind: str, placement: str) -> None:
    config = tiny_config(position_embedding_type=kind, norm_placement=placement)
    model = tiny_model(config, dtype=torch.float64)
    masked = run(model, head_mask=FACTORS, output_hidden_states=True)
    oracle = Oracle(model, config)
    packed = random_packed(config, lengths=(7,))
    model.prune_heads(PRUNED)
    for got, right in zip(run(model, output_hidden_states=True), masked, strict=True):
        assert torch.allclose(got, right, atol=1e-9, rtol=0)
    assert packed.ids_T is not None
    right_state = oracle(packed.ids_T, segments=packed.segments_T, head_factors=FACTORS).last
    assert gap(model.bert.encode(packed), right_state) < 1e-9


def test_only_the_rows_and_columns_of_the_kept_heads_are_left() -> None:
    model = tiny_model()
    attention = model.bert.attentions()[0]
    weight, bias = attention.qkv.weight.detach().clone(), attention.qkv.bias.detach().clone()
    output = attention.output.weight.detach().clone()
    before = model.num_parameters()
    model.prune_heads({0: [2, 0]})
    # Heads 1 and 3, five rows each, of the Q, K and V blocks of twenty.
    rows = [*range(5, 10), *range(15, 20), *range(25, 30), *range(35, 40), *range(45, 50), *range(55, 60)]
    assert torch.equal(attention.qkv.weight, weight[rows])
    assert torch.equal(attention.qkv.bias, bias[rows])
    assert torch.equal(attention.output.weight, output[:, [*range(5, 10), *range(15, 20)]])
    assert attention.output.bias.shape == (20,)
    assert before - model.num_parameters() == 30 * 20 + 30 + 10 * 20
    assert attention.kept_heads == [1, 3]
    assert (attention.qkv.in_features, attention.qkv.out_features) == (20, 30)
    assert (attention.output.in_features, attention.output.out_features) == (10, 20)


def test_pruning_twice_changes_nothing() -> None:
    model = tiny_model()
    model.prune_heads(PRUNED)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    config, answers = model.config, run(model)
    model.prune_heads(PRUNED)
    model.prune_heads({0: [0, 0]})
    model.prune_heads({})
    assert model.config == config
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(got, right) for got, right in zip(run(model), answers, strict=True))


def test_numbers_stay_the_original_ones() -> None:
    at_once, in_steps = tiny_model(dtype=torch.float64), tiny_model(dtype=torch.float64)
    at_once.prune_heads({0: [0, 2], 1: [3], 2: [1]})
    in_steps.prune_heads({0: [2]})
    in_steps.prune_heads({2: (1,), 0: {0}})
    in_steps.prune_heads({1: [3]})
    assert in_steps.config == at_once.config
    assert at_once.config.pruned_heads == {0: (0, 2), 1: (3,), 2: (1,)}
    for name, value in at_once.state_dict().items():
        assert torch.equal(in_steps.state_dict()[name], value)


def test_a_head_mask_counts_original_heads_after_pruning() -> None:
    model, pruned = tiny_model(dtype=torch.float64), tiny_model(dtype=torch.float64)
    pruned.prune_heads(PRUNED)
    factors = torch.rand(3, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    for got, right in zip(run(pruned, head_mask=factors), run(model, head_mask=factors * FACTORS), strict=True):
        assert torch.allclose(got, right, atol=1e-9, rtol=0)


def test_attention_weights_are_those_of_the_kept_heads() -> None:
    model, pruned = tiny_model(dtype=torch.float64), tiny_model(dtype=torch.float64)
    pruned.prune_heads({0: [2, 0]})
    whole = model.bert(random_ids(), output_attentions=True).attentions
    kept = pruned.bert(random_ids(), output_attentions=True).attentions
    assert whole is not None
    assert kept is not None
    assert torch.allclose(kept[0], whole[0][:, [1, 3]], atol=1e-9, rtol=0)
    assert kept[1].shape == whole[1].shape


def test_a_model_made_from_a_pruned_config_has_the_pruned_shapes() -> None:
    pruned = tiny_model()
    pruned.prune_heads(PRUNED)
    made = BertForPreTraining(pruned.config).eval()
    made.load_state_dict(pruned.state_dict())
    for got, right in zip(run(made), run(pruned), strict=True):
        assert torch.equal(got, right)


@pytest.mark.parametrize(
    ("earlier", "heads", "message"),
    [
        ({}, {0: [0, 1, 2, 3]}, r"pruned_heads\[0\]: all 4 heads are pruned"),
        ({1: [0, 1, 2]}, {1: [3]}, r"pruned_heads\[1\]: all 4 heads are pruned"),
        ({}, {0: [4]}, r"pruned_heads\[0\]: \(4,\) is not .* head numbers, 0 to 3"),
        ({}, {0: [-1]}, r"pruned_heads\[0\]: \(-1,\) is not"),
        ({}, {3: [0]}, r"pruned_heads: 3 is not a layer number, 0 to 2"),
        ({}, {-1: [0]}, r"pruned_heads: -1 is not a layer number"),
        ({}, {0: 1}, r"heads\[0\]: 1 is not a list of head numbers"),
        ({}, {0: [0, "1"]}, r"heads\[0\]: \[0, '1'\] is not a list of head numbers"),
        ({}, {0: [[1]]}, r"heads\[0\]: \[\[1\]\] is not a list of head numbers"),
        ({}, [(0, 1)], r"heads: \[\(0, 1\)\] is not a mapping of layer number to head numbers"),
        ({0: [1]}, {"0": [1]}, r"pruned_heads: '0' is not a layer number"),
    ],
)
def test_what_cannot_be_pruned_is_refused_and_changes_nothing(
    earlier: Mapping[int, list[int]], heads: Any, message: str
) -> None:
    model = tiny_model()
    model.prune_heads(earlier)
    config, shapes = model.config, [parameter.shape for parameter in model.parameters()]
    with pytest.raises(ValueError, match=f"^{message}"):
        model.prune_heads(heads)
    assert model.config == config
    assert [parameter.shape for parameter in model.parameters()] == shapes


def test_a_prepacked_model_cannot_be_pruned() -> None:
    model = tiny_model()
    model.prepack()
    with pytest.raises(ValueError, match="^prune_heads: the model is prepacked"):
        model.prune_heads({0: [1]})
    assert model.config.pruned_heads == {}


def test_the_torch_reference_path_cannot_be_pruned() -> None:
    with pytest.raises(ValueError, match=r"^use_torch_multi_head: "):
        tiny_model(tiny_config(use_torch_multi_head=True)).prune_heads({0: [0]})


def test_gradients_flow_after_pruning_and_frozen_layers_stay_frozen() -> None:
    model = tiny_model()
    model.bert.attentions()[1].requires_grad_(False)
    model.train().prune_heads({0: [1], 1: [2]})
    trained, frozen = model.bert.attentions()[:2]
    assert trained.qkv.training
    output = model.bert(random_ids())
    output.last_hidden_state.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in trained.parameters())
    assert all(not parameter.requires_grad for parameter in frozen.parameters())
