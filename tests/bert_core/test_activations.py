from __future__ import annotations

import pytest
import torch

from bert_core.activations import ACTIVATIONS, get_activation
from tests.bert_core import oracle

POINTS = (-20.0, -2.699, -1.0, -0.01, 0.0, 0.3, 1.0, 5.9, 6.5, 20.0)


@pytest.mark.parametrize("name", [*ACTIVATIONS, None])
def test_each_activation_is_its_formula(name: str | None) -> None:
    got = get_activation(name)(torch.tensor(POINTS, dtype=torch.float64))
    assert got.tolist() == pytest.approx([oracle.ACTIVATIONS[name](x) for x in POINTS], abs=1e-12)


def test_gelu_is_the_exact_form_and_the_tanh_form_has_its_own_names() -> None:
    one = torch.tensor(1.0)
    assert float(get_activation("gelu")(one)) == pytest.approx(0.8413447, abs=1e-7)
    for name in ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"):
        assert float(get_activation(name)(one)) == pytest.approx(0.8411920, abs=1e-7)
    x = torch.linspace(-5, 5, 10001, dtype=torch.float64)
    difference = (get_activation("gelu")(x) - get_activation("gelu_new")(x)).abs()
    assert float(difference.max()) == pytest.approx(4.73e-4, abs=1e-6)
    assert abs(float(x[difference.argmax()])) == pytest.approx(2.70, abs=0.01)


def test_a_callable_is_itself() -> None:
    assert get_activation(torch.sin) is torch.sin


@pytest.mark.parametrize("name", ["swooglu", "GELU", "gelu ", "", "gelu_old"])
def test_an_unknown_name_is_refused_with_the_names_that_are_allowed(name: str) -> None:
    with pytest.raises(ValueError, match=r"^hidden_act: '.*' is not one of gelu, .*tanh$"):
        get_activation(name)
