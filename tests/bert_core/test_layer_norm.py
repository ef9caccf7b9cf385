"""The layer against float64, with and without the kernel."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bert_core import layer_norm as module
from bert_core.layer_norm import LayerNorm
from tests.bert_core.test_tiles import check_that_one_row_suffers, computing_threads, needs_tiles


def layer(width: int, *, eps: float = 1e-12, dtype: torch.dtype = torch.bfloat16) -> LayerNorm:
    generator = torch.Generator().manual_seed(width)
    made = LayerNorm(width, eps=eps)
    made.weight.data = torch.randn(width, generator=generator)
    made.bias.data = torch.randn(width, generator=generator)
    return made.to(dtype).requires_grad_(False)


def rows(count: int, width: int) -> Tensor:
    return (5 + 3 * torch.randn(count, width, generator=torch.Generator().manual_seed(count))).bfloat16()


def right(norm: LayerNorm, given: Tensor) -> Tensor:
    given = given.double()
    centred = given - given.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred / (variance + norm.eps).sqrt() * norm.weight.double() + norm.bias.double()


@needs_tiles
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [32, 64, 384, 800])
def test_the_kernel_is_right(width: int, threads: int) -> None:
    norm = layer(width)
    norm.prepack()
    with computing_threads(threads):
        for count in (0, 1, 2, 63, 64, 65, 200):
            given = rows(count, width)
            got = norm(given)
            assert got.dtype == torch.bfloat16
            assert got.shape == given.shape
            wanted = right(norm, given)
            assert bool(((got.double() - wanted).abs() <= wanted.abs() * 2**-8 + 1e-5).all()), count


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [20, 64])
def test_prepacking_changes_no_answer(width: int, dtype: torch.dtype) -> None:
    norm, given = layer(width, dtype=dtype), rows(20, width).to(dtype)
    before = norm(given)
    norm.prepack()
    norm.prepack()
    rounding = torch.finfo(dtype).eps
    assert torch.allclose(norm(given).float(), before.float(), atol=4 * rounding, rtol=2 * rounding)
    assert norm.state_dict().keys() == {"weight", "bias"}


@needs_tiles
@pytest.mark.parametrize("value", [0.0, 3.0, -1e30])
def test_rows_of_one_number_are_the_bias(value: float) -> None:
    norm = layer(64, eps=1e-12)
    norm.prepack()
    assert torch.allclose(norm(torch.full((3, 64), value).bfloat16()), norm.bias.expand(3, -1))


@needs_tiles
def test_a_variance_beyond_float32_is_no_number() -> None:
    norm, given = layer(64), rows(3, 64)
    norm.prepack()
    check_that_one_row_suffers(norm, given, row=1, spoilt=given[1] * 1e30)


@needs_tiles
def test_rows_need_not_lie_side_by_side() -> None:
    norm, given = layer(64), rows(20, 128)
    norm.prepack()
    assert torch.equal(norm(given[:, :64]), norm(given[:, :64].clone()))
    assert torch.equal(norm(given[:, :64].mT.contiguous().mT), norm(given[:, :64].clone()))


@needs_tiles
def test_a_number_that_is_not_finite_stays_in_its_row() -> None:
    norm, given = layer(64), rows(20, 64)
    norm.prepack()
    spoilt = given[7].clone()
    spoilt[3] = torch.inf
    check_that_one_row_suffers(norm, given, row=7, spoilt=spoilt)


@needs_tiles
@pytest.mark.parametrize("given", [rows(3, 64).float(), rows(3, 32), rows(3, 64)[0]])
def test_rows_that_are_not_for_the_kernel_are_refused(given: Tensor) -> None:
    norm = layer(64)
    norm.prepack()
    with pytest.raises(ValueError, match=r"^rows: .*, where bfloat16 \[M, 64\] on the CPU is needed$"):
        norm(given)


@pytest.mark.parametrize("norm", [layer(64, dtype=torch.float32), layer(64, dtype=torch.float16), layer(40)])
def test_the_kernel_serves_no_others(monkeypatch: pytest.MonkeyPatch, norm: LayerNorm) -> None:
    monkeypatch.setattr(module, "tiles", lambda: object())  # as if there were tiles, wherever this runs
    given = torch.ones(3, len(norm.weight), dtype=norm.weight.dtype)
    before = norm(given)
    norm.prepack()
    assert torch.equal(norm(given), before)
