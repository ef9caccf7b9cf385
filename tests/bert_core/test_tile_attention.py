"""The kernel for matrix tiles against the softmax formula in float64, alone and within a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core import attention, linear
from bert_core.attention import SelfAttention
from bert_core.packing import WantedRows
from bert_core.tile_attention import TileAttention, tile_attention
from tests.bert_core.test_tiles import NO_TILES, computing_threads
from tests.tiny import random_packed, tiny_config, tiny_model

HEADS = 3
MIXED = (1, 2, 15, 16, 17, 31, 32, 33, 47, 64, 65, 100, 128, 130, 257, 512, 3)


def kernel() -> TileAttention:
    """The kernel; skips the test where it is not to be had."""
    found = tile_attention()
    if found is None:
        pytest.skip(NO_TILES)
    return found


def offsets(lengths: Sequence[int]) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


def projections(tokens: int, *, width: int, seed: int = 0, spread: float = 2.0) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values `[T, H, K]`, side by side in memory as one product makes them."""
    generator = torch.Generator().manual_seed(seed)
    qkv = torch.randn(tokens, 3, HEADS, width, generator=generator)
    qkv[:, 0] *= spread
    q_THK, k_THK, v_THK = qkv.bfloat16().unbind(1)
    return q_THK, k_THK, v_THK


def right(q_QHK: Tensor, k_LHK: Tensor, v_LHK: Tensor) -> Tensor:
    """Context `[Q, A]` of one sequence, in float64."""
    q_HQK, k_HLK, v_HLK = (one.double().transpose(0, 1) for one in (q_QHK, k_LHK, v_LHK))
    weights_HQL: Tensor = (q_HQK @ k_HLK.mT * q_QHK.shape[-1] ** -0.5).softmax(-1)
    return (weights_HQL @ v_HLK).transpose(0, 1).flatten(1)


def attend(q_RHK: Tensor, k_THK: Tensor, v_THK: Tensor, lengths: Sequence[int], counts: Sequence[int]) -> Tensor:
    return kernel()(q_RHK, k_THK, v_THK, query_offsets_N1=offsets(counts), key_offsets_N1=offsets(lengths))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [32, 64, 96, 128])
def test_it_is_the_formula(width: int, threads: int) -> None:
    q_THK, k_THK, v_THK = projections(sum(MIXED), width=width)
    with computing_threads(threads):
        got = attend(q_THK, k_THK, v_THK, MIXED, MIXED)
    assert got.shape == (sum(MIXED), HEADS * width)
    assert got.dtype == torch.bfloat16
    begin = 0
    for length in MIXED:
        rows = slice(begin, begin + length)
        expected = right(q_THK[rows], k_THK[rows], v_THK[rows])
        # Weights and results are rounded to 8 bits each.
        assert torch.allclose(got[rows].double(), expected, atol=2**-7, rtol=2**-7), length
        begin += length


@pytest.mark.parametrize("width", [32, 64])
def test_wanted_rows_may_be_fewer_than_keys(width: int) -> None:
    lengths, counts = (40, 7, 129, 64, 5), (1, 0, 33, 64, 2)
    q_THK, k_THK, v_THK = projections(sum(lengths), width=width)
    full = attend(q_THK, k_THK, v_THK, lengths, lengths)
    starts = offsets(lengths).tolist()
    rows = [start + row for start, count in zip(starts, counts, strict=False) for row in range(count)]
    # Rows of their own in memory, unlike those of the keys.
    got = attend(q_THK[rows].contiguous(), k_THK, v_THK, lengths, counts)
    assert torch.equal(got, full[rows])


def test_a_sequence_alone_has_the_very_bits_it_has_among_others() -> None:
    q_THK, k_THK, v_THK = projections(sum(MIXED), width=32)
    together = attend(q_THK, k_THK, v_THK, MIXED, MIXED)
    begin = 0
    for length in MIXED:
        rows = slice(begin, begin + length)
        alone = attend(q_THK[rows].clone(), k_THK[rows].clone(), v_THK[rows].clone(), [length], [length])
        assert torch.equal(alone, together[rows]), length
        begin += length


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("length", [5, 16, 33])
def test_numbers_that_are_not_finite_stay_in_their_sequence(part: int, poison: float, length: int) -> None:
    lengths = (length, length, length)
    clean = projections(sum(lengths), width=32)
    bad = [one.clone() for one in clean]
    bad[part][length : 2 * length] = poison
    expected, got = attend(*clean, lengths, lengths), attend(bad[0], bad[1], bad[2], lengths, lengths)
    rest = [*range(length), *range(2 * length, 3 * length)]
    assert torch.equal(got[rest], expected[rest])
    assert not got[length : 2 * length].isfinite().any()


@pytest.mark.parametrize("spread", [0.0, 1e-30, 1e4, 1e30])
def test_small_and_huge_scores(spread: float) -> None:
    q_THK, k_THK, v_THK = projections(70, width=32, spread=spread)
    got = attend(q_THK, k_THK, v_THK, [70], [70])
    assert torch.allclose(got.double(), right(q_THK, k_THK, v_THK), atol=2**-7, rtol=2**-7)


def test_a_key_that_outweighs_all_others_is_found_wherever_it_is() -> None:
    length = 70
    q_THK, k_THK, v_THK = projections(length, width=32, spread=0.0)
    q_THK[...] = 1.0
    for place in range(length):
        k_THK[...] = -1.0
        k_THK[place] = 30.0
        got = attend(q_THK, k_THK, v_THK, [length], [length])
        assert torch.equal(got, v_THK[place].flatten().expand(length, -1)), place


def test_pytorchs_own_products_on_tiles_go_on_as_before() -> None:
    # PyTorch's kernel keeps the tiles as it has set them from one call to the next, on each thread.
    q_THK, k_THK, v_THK = projections(256, width=64)
    q_1HLK, k_1HLK, v_1HLK = (one.transpose(0, 1)[None] for one in (q_THK, k_THK, v_THK))
    before = F.scaled_dot_product_attention(q_1HLK, k_1HLK, v_1HLK)
    product = F.linear(q_1HLK, k_1HLK[0, 0])
    for length in (10, 256):
        attend(q_THK[:length], k_THK[:length], v_THK[:length], [length], [length])
        assert torch.equal(F.scaled_dot_product_attention(q_1HLK, k_1HLK, v_1HLK), before)
        assert torch.equal(F.linear(q_1HLK, k_1HLK[0, 0]), product)


def test_tensors_that_do_not_fit_are_refused() -> None:
    q_THK, k_THK, v_THK = projections(20, width=32)
    for parts, lengths, counts in (
        ((q_THK, k_THK, v_THK), (21,), (20,)),
        ((q_THK, k_THK, v_THK), (20,), (21,)),
        ((q_THK, k_THK, v_THK), (10, 10), (20,)),
        ((q_THK.float(), k_THK, v_THK), (20,), (20,)),
        ((q_THK, k_THK, v_THK.contiguous()), (20,), (20,)),
        ((q_THK[:, :, ::2], k_THK[:, :, ::2], v_THK[:, :, ::2]), (20,), (20,)),
        ((q_THK[:, :1], k_THK, v_THK), (20,), (20,)),
    ):
        with pytest.raises(ValueError, match="do not fit these tensors"):
            attend(*parts, lengths, counts)


def test_heads_that_fill_no_rows_of_tiles_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit these tensors"):
        attend(*projections(20, width=48), (20,), (20,))


@pytest.mark.parametrize(
    ("queries", "keys"),
    [([2, 4], [0, 4]), ([0, 4], [2, 4]), ([0, 5, 2], [0, 5, 8]), ([0, 5, 8], [0, 5, 2]), ([0, 2, 4], [0, 4, 4])],
)
def test_offsets_that_make_no_sequences_are_refused(queries: list[int], keys: list[int]) -> None:
    parts = projections(8, width=32)
    query_offsets_N1, key_offsets_N1 = (torch.tensor(own, dtype=torch.int32) for own in (queries, keys))
    with pytest.raises(ValueError, match="offsets that do not begin at 0 or descend, or queries without keys"):
        kernel()(*parts, query_offsets_N1=query_offsets_N1, key_offsets_N1=key_offsets_N1)


def bfloat16_attention(**changes: object) -> tuple[SelfAttention, Tensor]:
    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2}
    config = tiny_config(**{**sizes, **changes})
    layer = tiny_model(config).requires_grad_(False).bfloat16().bert.attentions()[0]
    return layer, torch.randn(60, 64, generator=torch.Generator().manual_seed(3)).bfloat16()


def by_formula(
    q_RHK: Tensor, k_THK: Tensor, v_THK: Tensor, *, query_offsets_N1: Tensor, key_offsets_N1: Tensor
) -> Tensor:
    """What the kernel does, for machines without tiles."""
    context_RA = q_RHK.new_zeros(len(q_RHK), q_RHK[0].numel())
    queries, keys = query_offsets_N1.tolist(), key_offsets_N1.tolist()
    for number in range(len(keys) - 1):
        wanted, seen = slice(*queries[number : number + 2]), slice(*keys[number : number + 2])
        context_RA[wanted] = right(q_RHK[wanted], k_THK[seen], v_THK[seen]).to(q_RHK.dtype)
    return context_RA


@pytest.fixture(params=["kernel", "formula"])
def with_tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers attend by the kernel, or by what stands in for it where there is none."""
    found = kernel() if request.param == "kernel" else by_formula
    monkeypatch.setattr(attention, "tile_attention", lambda: found)


@pytest.mark.usefixtures("with_tiles")
@pytest.mark.parametrize("wanted", [False, True])
def test_a_layer_answers_alike_with_and_without_it(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    layer, hidden_TD = bfloat16_attention()
    packed = random_packed(tiny_config(), lengths=(20, 20, 13, 7))
    rows = WantedRows(rows_R=torch.tensor([0, 3, 20, 53]), counts=(2, 1, 0, 1)) if wanted else None
    on_tiles, _ = layer(hidden_TD, packed, wanted=rows)
    monkeypatch.setattr(attention, "tile_attention", lambda: None)
    without, _ = layer(hidden_TD, packed, wanted=rows)
    assert on_tiles.shape == without.shape
    assert torch.allclose(on_tiles.float(), without.float(), atol=2**-6, rtol=2**-6)


@pytest.mark.usefixtures("with_tiles")
@pytest.mark.parametrize("wanted", [False, True])
def test_a_prepacked_model_answers_alike_with_and_without_it(monkeypatch: pytest.MonkeyPatch, wanted: bool) -> None:
    config = tiny_config(hidden_size=64, num_attention_heads=2)
    monkeypatch.setattr(linear, "tile_product", lambda *_, **__: None)
    packed = random_packed(config, lengths=(20, 20, 13, 7, 1, 31))  # 92 tokens, so that rows of padding lie below
    rows = WantedRows(rows_R=torch.tensor([0, 3, 20, 53]), counts=(2, 1, 0, 1, 0, 0)) if wanted else None
    model = tiny_model(config).requires_grad_(False).bfloat16()
    model.prepack()
    assert model.bert.encoder.wants_padded_rows
    on_tiles = model.bert.encode(packed, wanted=rows)
    monkeypatch.setattr(attention, "tile_attention", lambda: None)
    without = model.bert.encode(packed, wanted=rows)
    assert on_tiles.shape == without.shape
    assert float(F.cosine_similarity(on_tiles.float(), without.float()).min()) > 0.999


@pytest.mark.usefixtures("with_tiles")
def test_rows_of_padding_below_the_tokens_are_answered_by_the_bias() -> None:
    layer, hidden_TD = bfloat16_attention()
    packed = random_packed(tiny_config(), lengths=(20, 20))
    output, _ = layer(hidden_TD, packed)
    assert torch.equal(output[40:], layer.output.bias.detach().expand(20, -1))
    assert torch.equal(output[:40], layer(hidden_TD[:40], packed)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_other_dtypes_are_pytorchs(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(attention, "tile_attention", lambda: by_formula)
    layer, _ = bfloat16_attention()
    assert layer.kernel(torch.bfloat16, device=torch.device("cpu")) == "tiles"
    assert layer.kernel(dtype, device=torch.device("cpu")) == "sdpa"


@pytest.mark.parametrize(
    "changes",
    [{"position_embedding_type": "relative_key"}, {"num_attention_heads": 4}, {"use_torch_multi_head": True}],
)
def test_what_it_cannot_do_is_pytorchs(monkeypatch: pytest.MonkeyPatch, changes: dict[str, object]) -> None:
    monkeypatch.setattr(attention, "tile_attention", lambda: by_formula)
    layer, _ = bfloat16_attention(**changes)
    assert layer.kernel(torch.bfloat16, device=torch.device("cpu")) == "sdpa"


def test_gradients_and_dropout_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("the kernel was asked for")

    layer, hidden_TD = bfloat16_attention(attention_probs_dropout_prob=0.5)
    packed = random_packed(tiny_config(), lengths=(20, 20, 13, 7))
    monkeypatch.setattr(attention, "tile_attention", refuse)
    layer.train()(hidden_TD, packed)
    output, _ = layer.eval().requires_grad_()(hidden_TD, packed)
    output.float().sum().backward()
    assert layer.qkv.weight.grad is not None
