"""The kernel for linear layers against float64, and what it is not for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bert_core import heads, tile_linear
from bert_core.heads import MaskedLMHead
from bert_core.linear import Linear
from bert_core.tile_linear import TileLinear
from bert_core.tiles import tiles
from tests.bert_core.test_tiles import NO_TILES
from tests.tiny import tiny_config

needs_tiles = pytest.mark.skipif(tiles() is None, reason=NO_TILES)


def layer(inputs: int, outputs: int, *, dtype: torch.dtype = torch.bfloat16) -> Linear:
    generator = torch.Generator().manual_seed(outputs)
    made = Linear(inputs, outputs)
    made.weight.data = torch.randn(outputs, inputs, generator=generator)
    made.bias.data = torch.randn(outputs, generator=generator)
    return made.to(dtype).requires_grad_(False)


def on_tiles(linear: Linear) -> TileLinear:
    made = tile_linear.tile_linear(linear)
    assert made is not None
    return made


def rows(count: int, inputs: int) -> Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(count)).bfloat16()


@needs_tiles
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 1), (64, 31), (96, 32), (384, 1000), (32, 3001)])
def test_it_is_the_product_in_float32(inputs: int, outputs: int, threads: int) -> None:
    linear = layer(inputs, outputs)
    tiled = on_tiles(linear)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for count in (0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 100):
            given = rows(count, inputs)
            got = tiled(given)
            right = given.double() @ linear.weight.double().mT + linear.bias.double()
            assert got.dtype == torch.float32
            assert got.shape == (count, outputs)
            assert torch.allclose(got.double(), right, atol=1e-4, rtol=1e-5), count
    finally:
        torch.set_num_threads(before)


@needs_tiles
def test_a_row_alone_has_the_very_bits_it_has_among_others() -> None:
    tiled = on_tiles(layer(64, 50))
    given = rows(40, 64)
    together = tiled(given)
    for number in range(40):
        assert torch.equal(tiled(given[number : number + 1])[0], together[number])


@needs_tiles
def test_rows_need_not_lie_side_by_side() -> None:
    tiled = on_tiles(layer(64, 50))
    given = rows(20, 128)
    assert torch.equal(tiled(given[:, :64]), tiled(given[:, :64].clone()))


@needs_tiles
def test_a_number_that_is_not_finite_stays_in_its_row() -> None:
    tiled = on_tiles(layer(64, 50))
    given = rows(20, 64)
    clean = tiled(given)
    given[7, 3] = torch.nan
    got = tiled(given)
    assert bool(got[7].isnan().all())
    rest = [number for number in range(20) if number != 7]
    assert torch.equal(got[rest], clean[rest])


@pytest.mark.parametrize(
    "linear", [layer(64, 50, dtype=torch.float32), layer(64, 50, dtype=torch.float16), layer(40, 50)]
)
def test_it_serves_no_other_layers(monkeypatch: pytest.MonkeyPatch, linear: Linear) -> None:
    monkeypatch.setattr(tile_linear, "tiles", lambda: object())  # as if there were tiles, wherever this runs
    assert tile_linear.tile_linear(linear) is None


@needs_tiles
@pytest.mark.parametrize("given", [rows(3, 64).float(), rows(3, 32), rows(3, 64)[0]])
def test_rows_that_are_not_for_it_are_refused(given: Tensor) -> None:
    with pytest.raises(ValueError, match="rows: .* are not for this layer"):
        on_tiles(layer(64, 50))(given)


@needs_tiles
def test_an_addend_is_added() -> None:
    tiled, given = on_tiles(layer(64, 50)), rows(3, 64)
    assert torch.equal(tiled(given, addend=torch.ones(3, 50)), tiled(given) + 1)


@needs_tiles
@pytest.mark.parametrize("tied", [False, True])
def test_the_masked_lm_head_answers_alike_with_and_without_it(monkeypatch: pytest.MonkeyPatch, tied: bool) -> None:
    config = tiny_config(hidden_size=64, num_attention_heads=2)
    torch.manual_seed(0)
    embeddings = torch.nn.Parameter(torch.randn(config.vocab_size, 64).bfloat16(), requires_grad=False)

    def prepacked() -> MaskedLMHead:
        torch.manual_seed(1)
        head = MaskedLMHead(config).bfloat16().requires_grad_(False)
        if tied:
            head.decoder.weight = embeddings
        head.prepack()
        return head

    with_tiles = prepacked()
    monkeypatch.setattr(heads, "tile_linear", lambda _: None)
    without = prepacked()
    assert isinstance(with_tiles.decoder, TileLinear)
    assert not isinstance(without.decoder, TileLinear)
    given = rows(20, 64)
    assert with_tiles(given).dtype == torch.float32
    assert torch.allclose(with_tiles(given), without(given), atol=1e-5, rtol=1e-5)
