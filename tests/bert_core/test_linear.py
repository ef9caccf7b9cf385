from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bert_core.activations import get_activation
from bert_core.linear import Linear


def rows(count: int, width: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("count", [0, 1, 13, 130])
@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "tanh", "linear", None])
def test_it_is_product_bias_and_activation(count: int, activation: str | None) -> None:
    torch.manual_seed(0)
    linear = Linear(20, 37, activation=get_activation(activation))
    rows_TI = rows(count, 20)
    right = get_activation(activation)(rows_TI.double() @ linear.weight.double().T + linear.bias.double())
    assert torch.allclose(linear(rows_TI).double(), right, atol=1e-6, rtol=0)


def test_without_an_activation_it_is_the_plain_layer() -> None:
    linear = Linear(20, 37)
    assert torch.equal(linear(rows(13, 20)), F.linear(rows(13, 20), linear.weight, linear.bias))


@pytest.mark.parametrize("wanted", [slice(0, 7), slice(7, None), slice(3, 20)])
def test_outputs_are_a_slice_of_the_product_before_the_activation(wanted: slice) -> None:
    torch.manual_seed(0)
    linear = Linear(20, 37, activation=torch.tanh)
    right = F.linear(rows(13, 20), linear.weight, linear.bias)[:, wanted]
    assert torch.allclose(linear.outputs(rows(13, 20), wanted), right, atol=1e-6, rtol=0)


def test_gradients_flow() -> None:
    linear = Linear(20, 37, activation=torch.tanh)
    inputs = rows(13, 20).requires_grad_()
    linear(inputs).sum().backward()
    for tensor in (inputs, linear.weight, linear.bias):
        assert tensor.grad is not None
        assert bool(tensor.grad.abs().sum() > 0)
