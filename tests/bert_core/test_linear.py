from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bert_core.activations import ACTIVATIONS, get_activation
from bert_core.linear import Linear
from bert_core.onednn_product import can_prepack

ROWS, INPUTS, OUTPUTS = 5, 13, 7


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*ACTIVATIONS, None])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_prepacked_weights_give_equal_results(count: int, name: str | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    linear = Linear(INPUTS, OUTPUTS, activation=get_activation(name)).to(dtype).requires_grad_(False)
    rows_TI = rows(count, INPUTS).to(dtype)
    expected = linear(rows_TI)
    linear.prepack()
    found = linear(rows_TI)
    assert found.dtype == dtype
    assert found.shape == expected.shape
    rounding = torch.finfo(dtype).eps
    assert torch.allclose(found.float(), expected.float(), rtol=4 * rounding, atol=4 * rounding)


def test_prepacking_gives_the_plain_weight_up() -> None:
    linear = Linear(INPUTS, OUTPUTS)
    assert can_prepack(linear.weight)
    linear.prepack()
    assert [name for name, _ in linear.named_parameters()] == ["bias"]
    linear.prepack()
    assert linear(torch.ones(ROWS, INPUTS)).shape == (ROWS, OUTPUTS)


def test_where_weights_cannot_be_prepacked_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = Linear(INPUTS, OUTPUTS)
    rows_TI = rows(ROWS, INPUTS)
    expected = linear(rows_TI)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    linear.prepack()
    assert torch.equal(linear(rows_TI), expected)
    assert dict(linear.named_parameters()).keys() == {"weight", "bias"}
    assert not can_prepack(torch.empty(1, dtype=torch.float64))
    assert not can_prepack(torch.empty(1, device="meta"))


def test_a_part_gives_some_of_the_outputs() -> None:
    linear = Linear(INPUTS, OUTPUTS, activation=torch.relu)
    rows_TI = rows(ROWS, INPUTS)
    assert torch.equal(linear.part(slice(2, 6))(rows_TI), linear(rows_TI)[:, 2:6])
