"""The kernel for linear layers against float64, and what it is not for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core import linear as linear_module
from bert_core import tile_product as module
from bert_core.activations import ACTIVATIONS, Activation, identity
from bert_core.heads import MaskedLMHead
from bert_core.linear import Linear
from bert_core.tile_product import LOGISTIC_ACTIVATIONS, TileProduct, tile_product
from tests.bert_core.test_tiles import check_that_one_row_suffers, computing_threads, needs_tiles
from tests.tiny import tiny_config

COUNTS = (0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 100)


class Layer:
    """A layer's numbers, its result in float64, and the kernel for it."""

    def __init__(self, inputs: int, outputs: int, *, dtype: torch.dtype = torch.bfloat16) -> None:
        generator = torch.Generator().manual_seed(outputs)
        self.weight = (torch.randn(outputs, inputs, generator=generator) * inputs**-0.5).to(dtype)
        self.bias = torch.randn(outputs, generator=generator).to(dtype)

    def right(self, rows: Tensor) -> Tensor:
        return F.linear(rows.double(), self.weight.double(), self.bias.double())

    def on_tiles(self, *, activation: Activation = identity, results: torch.dtype = torch.bfloat16) -> TileProduct:
        made = tile_product(self.weight, self.bias, activation=activation, results=results)
        assert made is not None
        return made


def rows(count: int, width: int, *, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(100 * seed + count)).bfloat16()


def is_rounded(got: Tensor, right: Tensor, *, more: float = 1e-5) -> bool:
    """Whether bfloat16 numbers are float64's but for one rounding, of 8 bits, and a little `more`."""
    assert got.dtype == torch.bfloat16
    return bool(((got.double() - right).abs() <= right.abs() * 2**-8 + more).all())


@needs_tiles
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 1), (64, 31), (96, 32), (384, 1000), (32, 3001), (1536, 64)])
def test_it_is_the_product_in_float32(inputs: int, outputs: int, threads: int) -> None:
    layer = Layer(inputs, outputs)
    product = layer.on_tiles(results=torch.float32)
    with computing_threads(threads):
        for count in COUNTS:
            given = rows(count, inputs)
            got = product(given)
            assert got.dtype == torch.float32
            assert got.shape == (count, outputs)
            assert torch.allclose(got.double(), layer.right(given), atol=1e-5, rtol=1e-5), count


@needs_tiles
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 1), (64, 31), (96, 32), (384, 1000), (1536, 64)])
def test_it_is_the_product_rounded(inputs: int, outputs: int, threads: int) -> None:
    layer = Layer(inputs, outputs)
    product = layer.on_tiles()
    with computing_threads(threads):
        for count in COUNTS:
            given, addend = rows(count, inputs), rows(count, outputs, seed=1)
            right = layer.right(given)
            assert is_rounded(product(given), right), count
            assert product(given).shape == right.shape
            # With outputs that fill no tiles the sum is rounded twice.
            assert is_rounded(product(given, addend=addend), right + addend.double(), more=0.02), count


@needs_tiles
def test_a_sum_is_rounded_once() -> None:
    layer, given, addend = Layer(64, 96), rows(50, 64), rows(50, 96, seed=1)
    assert is_rounded(layer.on_tiles()(given, addend=addend), layer.right(given) + addend.double())


@needs_tiles
def test_weights_that_do_not_fit_a_cache_are_met_share_by_share() -> None:
    layer, given = Layer(1024, 2080), rows(70, 1024)
    assert is_rounded(layer.on_tiles()(given), layer.right(given))


@needs_tiles
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("results", [torch.bfloat16, torch.float32])
def test_activations_follow(name: str, results: torch.dtype) -> None:
    layer, given = Layer(64, 96), 3 * rows(50, 64)
    right = ACTIVATIONS[name](layer.right(given))
    got = layer.on_tiles(activation=ACTIVATIONS[name], results=results)(given)
    assert got.dtype == results
    if results == torch.float32:
        assert torch.allclose(got.double(), right, atol=1e-5, rtol=1e-5)
    else:
        # Those of PyTorch follow a sum that is rounded already.
        fused = ACTIVATIONS[name] in LOGISTIC_ACTIVATIONS
        assert is_rounded(got, right, more=7e-5 if fused else 0.05)


def of_each_number(activation: Activation, numbers: Tensor) -> Tensor:
    """The kernel's activation of bfloat16 numbers: of the products with one and zeros."""
    given = torch.zeros(len(numbers), 32, dtype=torch.bfloat16)
    given[:, 0] = numbers
    weight = torch.zeros(32, 32, dtype=torch.bfloat16)
    weight[0, 0] = 1
    product = tile_product(weight, torch.zeros(32).bfloat16(), activation=activation, results=torch.bfloat16)
    assert product is not None
    return product(given)[:, 0]


@needs_tiles
@pytest.mark.parametrize("activation", LOGISTIC_ACTIVATIONS)
def test_activations_are_right_everywhere(activation: Activation) -> None:
    patterns = torch.arange(2**16).to(torch.uint16).view(torch.bfloat16)
    numbers = patterns[patterns.isfinite()]
    got, right = of_each_number(activation, numbers).double(), activation(numbers.double())
    assert bool(got.isfinite().all())
    assert is_rounded(got.bfloat16(), right)
    # Where the result is no tail, nearly as near as a rounded number can be, small ones too.
    centre = (numbers.abs() <= 3) & (numbers.abs() > 1e-30)
    assert bool(((got - right).abs() <= right.abs() * 1.5 * 2**-8)[centre].all())


@needs_tiles
@pytest.mark.parametrize("activation", LOGISTIC_ACTIVATIONS)
def test_what_is_not_a_number_stays_so(activation: Activation) -> None:
    assert bool(of_each_number(activation, torch.tensor([torch.nan]).bfloat16()).isnan().all())
    assert of_each_number(activation, torch.tensor([torch.inf]).bfloat16()).item() == torch.inf


@needs_tiles
@pytest.mark.parametrize(
    ("activation", "results"), [(identity, torch.bfloat16), (F.gelu, torch.bfloat16), (identity, torch.float32)]
)
def test_a_row_alone_has_the_very_bits_it_has_among_others(activation: Activation, results: torch.dtype) -> None:
    product = Layer(64, 50).on_tiles(activation=activation, results=results)
    given = rows(40, 64)
    together = product(given)
    for number in range(40):
        assert torch.equal(product(given[number : number + 1])[0], together[number])


@needs_tiles
def test_rows_and_addends_need_not_lie_side_by_side() -> None:
    product, given, addend = Layer(64, 96).on_tiles(), rows(20, 128), rows(20, 192, seed=1)
    apart = product(given[:, :64], addend=addend[:, :96])
    assert torch.equal(apart, product(given[:, :64].clone(), addend=addend[:, :96].clone()))
    turned = product(given[:, :64].mT.contiguous().mT, addend=addend[:, :96].mT.contiguous().mT)
    assert torch.equal(turned, apart)


@needs_tiles
@pytest.mark.parametrize("activation", [identity, F.gelu])
def test_a_number_that_is_not_finite_stays_in_its_row(activation: Activation) -> None:
    product = Layer(64, 50).on_tiles(activation=activation)
    given = rows(20, 64)
    spoilt = given[7].clone()
    spoilt[3] = torch.nan
    check_that_one_row_suffers(product, given, row=7, spoilt=spoilt)


@pytest.mark.parametrize(
    "layer", [Layer(64, 50, dtype=torch.float32), Layer(64, 50, dtype=torch.float16), Layer(40, 50)]
)
def test_it_serves_no_other_layers(monkeypatch: pytest.MonkeyPatch, layer: Layer) -> None:
    monkeypatch.setattr(module, "tiles", lambda: object())  # as if there were tiles, wherever this runs
    assert tile_product(layer.weight, layer.bias, activation=identity, results=torch.bfloat16) is None


def test_it_gives_no_other_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tiles", lambda: object())
    layer = Layer(64, 50)
    assert tile_product(layer.weight, layer.bias, activation=identity, results=torch.float16) is None


@needs_tiles
@pytest.mark.parametrize("given", [rows(3, 64).float(), rows(3, 32), rows(3, 64)[0]])
def test_rows_that_are_not_for_it_are_refused(given: Tensor) -> None:
    with pytest.raises(ValueError, match=r"^rows: .*, where bfloat16 \[M, 64\] on the CPU is needed$"):
        Layer(64, 50).on_tiles()(given)


@needs_tiles
@pytest.mark.parametrize("addend", [rows(3, 50).float(), rows(2, 50), rows(3, 64)])
def test_an_addend_that_does_not_fit_is_refused(addend: Tensor) -> None:
    with pytest.raises(ValueError, match=r"^addend: .*, where bfloat16 \[3, 50\] on the CPU is needed$"):
        Layer(64, 50).on_tiles()(rows(3, 64), addend=addend)


@needs_tiles
@pytest.mark.parametrize("activation", [F.gelu, torch.relu])
def test_an_addend_with_an_activation_is_refused(activation: Activation) -> None:
    product = Layer(64, 96).on_tiles(activation=activation)
    with pytest.raises(ValueError, match="^addend: a product with an activation takes none$"):
        product(rows(3, 64), addend=rows(3, 96))


@needs_tiles
def test_the_default_dtype_is_of_no_account() -> None:
    layer, given = Layer(64, 96), rows(3, 64)
    right = layer.on_tiles(activation=F.gelu)(given)
    for dtype in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            assert torch.equal(layer.on_tiles(activation=F.gelu)(given), right)
        finally:
            torch.set_default_dtype(torch.float32)


@needs_tiles
def test_rows_that_need_gradients_are_refused() -> None:
    product, given = Layer(64, 50).on_tiles(), rows(3, 64).requires_grad_()
    with pytest.raises(ValueError, match="^rows: prepacked weights give no gradients$"):
        product(given)
    with torch.no_grad():
        assert product(given).shape == (3, 50)


@needs_tiles
@pytest.mark.parametrize("tied", [False, True])
def test_the_masked_lm_head_answers_alike_with_and_without_it(monkeypatch: pytest.MonkeyPatch, tied: bool) -> None:
    config = tiny_config(hidden_size=64, num_attention_heads=2)
    torch.manual_seed(0)
    embeddings = torch.nn.Parameter(torch.randn(config.vocab_size, 64).bfloat16(), requires_grad=False)
    before = embeddings.clone()

    def prepacked() -> MaskedLMHead:
        torch.manual_seed(1)
        head = MaskedLMHead(config).bfloat16().requires_grad_(False)
        if tied:
            head.decoder.weight = embeddings
        head.prepack()
        return head

    given = rows(20, 64)
    with_tiles = prepacked()
    assert not with_tiles.decoder.wants_padded_rows
    monkeypatch.setattr(linear_module, "tile_product", lambda *_, **__: None)
    without = prepacked()
    assert without.decoder.wants_padded_rows
    assert with_tiles(given).dtype == without(given).dtype == torch.float32
    assert torch.allclose(with_tiles(given), without(given), atol=0.05, rtol=0.01)
    assert torch.equal(embeddings, before)


@needs_tiles
def test_a_prepacked_layer_takes_it() -> None:
    layer = Linear(64, 96, activation=F.gelu).bfloat16().requires_grad_(False)
    given = rows(40, 64)
    right = F.gelu(F.linear(given.double(), layer.weight.double(), layer.bias.double()))
    layer.prepack()
    assert not layer.wants_padded_rows
    assert is_rounded(layer(given), right, more=7e-5)
