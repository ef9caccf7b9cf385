from __future__ import annotations

from unittest import mock

import pytest
import torch
import torch.nn.functional as F

from bert_core.activations import Activation, identity
from bert_core.onednn_product import OneDnnProduct, product_rows

INPUTS, OUTPUTS = 13, 7


def rows(count: int, width: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("activation", [F.gelu, F.mish, identity])
@pytest.mark.parametrize("count", [0, 1, 8, 9, 13, 67, 300, 1030])
def test_any_number_of_rows_goes_through_one_of_few_products(count: int, activation: Activation) -> None:
    weight, bias, given = rows(OUTPUTS, INPUTS, seed=1), rows(1, OUTPUTS, seed=2)[0], rows(count, INPUTS)
    product = OneDnnProduct(weight, bias, activation=activation)
    products = mock.Mock(wraps=product._multiply)
    with mock.patch.object(product, "_multiply", products):
        found = product(given)
    assert found.shape == (count, OUTPUTS)
    assert torch.allclose(found, activation(F.linear(given, weight, bias)), atol=1e-6)
    assert len(products.call_args.args[0]) == product_rows(count)


@pytest.mark.parametrize("count", [0, 1, 9, 67])
def test_an_addend_is_added(count: int) -> None:
    weight, bias, given = rows(OUTPUTS, INPUTS, seed=1), rows(1, OUTPUTS, seed=2)[0], rows(count, INPUTS)
    addend = rows(count, OUTPUTS, seed=3)
    found = OneDnnProduct(weight, bias, activation=identity)(given, addend=addend)
    assert torch.allclose(found, F.linear(given, weight, bias) + addend, atol=1e-6)


def test_rows_are_converted_to_the_dtype_of_the_weights() -> None:
    weight, bias, given = rows(OUTPUTS, INPUTS, seed=1), rows(1, OUTPUTS, seed=2)[0], rows(3, INPUTS).bfloat16()
    found = OneDnnProduct(weight, bias, activation=identity)(given)
    assert torch.allclose(found, F.linear(given.float(), weight, bias), atol=1e-6)


def test_the_numbers_of_rows_of_products_are_few_and_near() -> None:
    numbers = [product_rows(rows) for rows in range(1, 3001)]
    assert all(rows <= number for rows, number in enumerate(numbers, start=1))
    assert all(number <= max(1.25 * rows, rows + 7) for rows, number in enumerate(numbers, start=1))
    assert all(product_rows(number) == number for number in numbers)
    assert len(set(numbers)) < 60


def test_an_addend_with_an_activation_is_refused() -> None:
    product = OneDnnProduct(rows(OUTPUTS, INPUTS), rows(1, OUTPUTS)[0], activation=F.gelu)
    with pytest.raises(ValueError, match="^addend: a product with an activation takes none$"):
        product(rows(3, INPUTS), addend=rows(3, OUTPUTS))
