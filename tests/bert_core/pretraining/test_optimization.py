"""Which parameters decay, which are heads, and how the rate goes."""

from __future__ import annotations

import pytest
import torch

from bert_core.pretraining.optimization import Optimization, make_optimizer, set_learning_rate
from tests.tiny import tiny_model


def test_biases_and_norms_do_not_decay_and_heads_have_their_own_rate() -> None:
    model = tiny_model()
    optimizer = make_optimizer(model, Optimization(learning_rate=1e-4, head_learning_rate=1e-3, weight_decay=0.1))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {
        names[id(parameter)]: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert set(found) == set(names.values())
    for name, (rate, decay) in found.items():
        is_head = name.startswith(("bert.pooler", "mlm", "nsp"))
        assert rate == (1e-3 if is_head else 1e-4), name
        assert decay == (0.0 if name.endswith("bias") or "norm" in name else 0.1), name
    assert found["bert.embeddings.token.weight"] == (1e-4, 0.1)  # the decoder's too
    assert found["mlm.decoder.bias"] == (1e-3, 0.0)
    set_learning_rate(optimizer, factor=0.5)
    assert {group["lr"] for group in optimizer.param_groups} == {5e-5, 5e-4}
    set_learning_rate(optimizer, factor=1.0)
    assert {group["lr"] for group in optimizer.param_groups} == {1e-4, 1e-3}


@pytest.mark.parametrize(
    ("warm_up", "progress", "factor"),
    [
        (0.1, 0.0, 0.0),
        (0.1, 0.05, 0.5),
        (0.1, 0.1, 1.0),
        (0.1, 0.55, 0.5),
        (0.1, 1.0, 0.0),
        (0.1, 1.2, 0.0),
        (0.0, 0.0, 1.0),
        (0.0, 0.25, 0.75),
        (1.0, 0.5, 0.5),
        (1.0, 1.0, 1.0),
    ],
)
def test_the_rate_rises_and_falls_linearly(warm_up: float, progress: float, factor: float) -> None:
    assert Optimization(warm_up=warm_up).factor(progress) == pytest.approx(factor)


def test_decay_pulls_weights_but_not_biases_to_zero() -> None:
    model = tiny_model()
    optimizer = make_optimizer(model, Optimization(learning_rate=0.1, weight_decay=0.5))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1.0 if name.endswith("bias") or "norm" in name else 0.95
        torch.testing.assert_close(parameter.detach(), before[name] * factor)
