from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from bert_core.attention_options import AttentionOptions
from bert_core.encoder import EncoderLayer, FeedForward
from bert_core.packing import PackedTokens, WantedRows
from tests.bert_core.oracle import Oracle, gap
from tests.tiny import random_packed, tiny_config, tiny_model

LENGTHS = (13, 7, 7, 1)
TOKENS = sum(LENGTHS)
KINDS = ("absolute", "sinusoidal", "relative_key", "relative_key_query")


def hidden_rows(rows: int = TOKENS, *, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, 20, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("chunk", [0, 1, 2, 5, TOKENS - 1, TOKENS, TOKENS + 1, 10_000])
def test_feed_forward_in_chunks_gives_equal_results_and_gradients(chunk: int) -> None:
    whole = tiny_model(tiny_config()).double().bert.encoder.layers[0].feed_forward
    chunked = tiny_model(tiny_config(chunk_size_feed_forward=chunk)).double().bert.encoder.layers[0].feed_forward
    assert isinstance(whole, FeedForward)
    assert isinstance(chunked, FeedForward)
    right_TD, got_TD = whole(hidden_rows()), chunked(hidden_rows())
    assert torch.allclose(got_TD, right_TD, atol=1e-12, rtol=0)
    for output in (right_TD, got_TD):
        output.square().sum().backward()
    for right, got in zip(whole.parameters(), chunked.parameters(), strict=True):
        assert right.grad is not None
        assert got.grad is not None
        assert torch.allclose(right.grad, got.grad, atol=1e-8, rtol=0)


def test_chunks_bound_the_rows_of_the_wide_middle() -> None:
    feed_forward = FeedForward(tiny_config(chunk_size_feed_forward=5)).double()
    seen: list[int] = []
    feed_forward.up.register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape[0]))
    feed_forward(hidden_rows(13))
    assert seen == [5, 5, 3]


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("act", ["gelu", "gelu_new", None])
@pytest.mark.parametrize("layers", [0, 1, 3])
def test_the_stack_is_the_formula(placement: str, kind: str, act: str | None, layers: int) -> None:
    config = tiny_config(
        norm_placement=placement, position_embedding_type=kind, hidden_act=act, num_hidden_layers=layers
    )
    model = tiny_model(config, dtype=torch.float64)
    packed = random_packed(config, lengths=LENGTHS)
    encoded = model.bert.encoder(
        model.bert.embeddings(packed), packed, keep_hidden_states=True, options=AttentionOptions(weights=True)
    )
    plain = model.bert.encode(packed)
    oracle = Oracle(model, config)
    assert packed.ids_T is not None
    assert len(encoded.hidden_states) == layers + 1
    assert len(encoded.attention_weights) == layers
    assert torch.equal(encoded.hidden_states[-1], encoded.hidden_RD)
    for number, begin in enumerate(packed.first_rows_N.tolist()):
        rows = slice(begin, begin + LENGTHS[number])
        right = oracle(packed.ids_T[rows], segments=packed.segments_T[rows])
        assert gap(plain[rows], right.last) < 1e-9
        for state_TD, right_state in zip(encoded.hidden_states, right.hidden_states, strict=True):
            assert gap(state_TD[rows], right_state) < 1e-9
        for run_weights, right_weights in zip(encoded.attention_weights, right.attentions, strict=True):
            weights = [weights_HLL for weights_NHLL in run_weights for weights_HLL in weights_NHLL]
            assert gap(weights[number], right_weights) < 1e-9


def test_states_and_weights_come_only_when_asked_for() -> None:
    model = tiny_model()
    packed = random_packed(lengths=LENGTHS)
    encoded = model.bert.encoder(model.bert.embeddings(packed), packed)
    assert encoded.hidden_states == encoded.attention_weights == ()


ROWS_OF_EACH: dict[str, list[list[int]]] = {
    "first of each": [[0], [0], [0], [0]],
    "differing counts": [[0, 4, 12], [6], [], [0]],
    "neighbours": [[], [2, 3], [2, 3], []],
    "one alone": [[], [], [], [0]],
    "everything": [list(range(length)) for length in LENGTHS],
    "nothing": [[], [], [], []],
}


def wanted_rows(packed: PackedTokens, rows_of_each: list[list[int]]) -> WantedRows:
    first = packed.first_rows_N.tolist()
    rows = [first[number] + row for number, own in enumerate(rows_of_each) for row in own]
    return WantedRows(rows_R=torch.tensor(rows, dtype=torch.long), counts=[len(own) for own in rows_of_each])


@pytest.mark.parametrize("rows", list(ROWS_OF_EACH))
@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [0, 1, 3])
@pytest.mark.parametrize("chunk", [0, 2])
def test_wanted_rows_are_those_of_the_full_pass(rows: str, placement: str, kind: str, layers: int, chunk: int) -> None:
    config = tiny_config(
        norm_placement=placement,
        position_embedding_type=kind,
        num_hidden_layers=layers,
        chunk_size_feed_forward=chunk,
        pruned_heads={0: (2,)} if layers else {},
    )
    model = tiny_model(config, dtype=torch.float64)
    packed = random_packed(config, lengths=LENGTHS)
    wanted = wanted_rows(packed, ROWS_OF_EACH[rows])
    got = model.bert.encode(packed, wanted=wanted)
    right = model.bert.encode(packed)[wanted.rows_R]
    assert got.shape == right.shape == (sum(wanted.counts), 20)
    assert torch.allclose(got, right, atol=1e-9, rtol=0)


def test_wanted_rows_in_float32() -> None:
    model, packed = tiny_model(), random_packed(lengths=LENGTHS)
    wanted = wanted_rows(packed, ROWS_OF_EACH["differing counts"])
    gap_RD = model.bert.encode(packed, wanted=wanted) - model.bert.encode(packed)[wanted.rows_R]
    assert float(gap_RD.detach().abs().max()) < 1e-5


def test_only_the_last_layer_is_spared() -> None:
    model, packed = tiny_model(), random_packed(lengths=LENGTHS)
    rows: list[int] = []
    for layer in model.bert.encoder.layers:
        assert isinstance(layer, EncoderLayer)
        layer.feed_forward.register_forward_hook(lambda _module, inputs, _output: rows.append(inputs[0].shape[0]))
    model.bert.encode(packed, wanted=wanted_rows(packed, ROWS_OF_EACH["differing counts"]))
    assert rows == [TOKENS, TOKENS, 5]


@pytest.mark.parametrize(
    "arguments",
    [
        {"keep_hidden_states": True},
        {"options": AttentionOptions(weights=True)},
        {"options": AttentionOptions(pair_mask_NLL=torch.ones(4, 7, 7, dtype=torch.bool))},
    ],
)
def test_wanted_rows_cannot_be_combined_with_what_needs_all_rows(arguments: dict[str, Any]) -> None:
    model, packed = tiny_model(), random_packed(lengths=LENGTHS)
    wanted = wanted_rows(packed, ROWS_OF_EACH["first of each"])
    with pytest.raises(ValueError, match=r"^wanted rows: hidden states, attention weights and a pair mask need all"):
        model.bert.encoder(model.bert.embeddings(packed), packed, wanted=wanted, **arguments)


def test_head_masks_are_per_layer() -> None:
    config = tiny_config()
    model = tiny_model(config, dtype=torch.float64)
    packed = random_packed(config, lengths=(7,))
    factors = torch.rand(3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    encoded = model.bert.encoder(model.bert.embeddings(packed), packed, head_masks=factors)
    assert packed.ids_T is not None
    right = Oracle(model, config)(packed.ids_T, segments=packed.segments_T, head_factors=factors)
    assert gap(encoded.hidden_RD, right.last) < 1e-9


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("place", ["attention.output", "feed_forward.down"])
def test_dropout_of_each_sub_layer_in_training_alone(placement: str, place: str) -> None:
    config = tiny_config(norm_placement=placement, hidden_dropout_prob=0.4, attention_probs_dropout_prob=0.0)
    layer = tiny_model(config, dtype=torch.float64).bert.encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    packed = random_packed(config, lengths=(40,) * 30)
    hidden_TD = hidden_rows(1200)
    # The other sub-layer adds nothing, and norms pass on what they get, so what is dropped shows in the difference.
    silent = "feed_forward.down" if place == "attention.output" else "attention.output"
    with torch.no_grad():
        for parameter in layer.get_submodule(silent).parameters():
            parameter.zero_()
    norm = layer.get_submodule("attention_norm" if place == "attention.output" else "feed_forward_norm")
    sums: list[Tensor] = []
    norm.register_forward_hook(lambda _module, inputs, _output: sums.append(inputs[0].detach()))
    outputs = []
    for training in (False, True):
        torch.manual_seed(0)
        outputs.append(layer.train(training)(hidden_TD, packed)[0].detach())
    if placement == "post":
        residual = hidden_TD if place == "attention.output" else layer.attention_norm(hidden_TD).detach()
        whole, dropped = (total - residual for total in sums)
    else:
        whole, dropped = (output - hidden_TD for output in outputs)
    zero = dropped.abs() < 1e-12
    assert float(zero.double().mean()) == pytest.approx(0.4, abs=0.02)
    assert torch.allclose(dropped[~zero], whole[~zero] / 0.6, atol=1e-9)
    assert torch.equal(layer.eval()(hidden_TD, packed)[0], outputs[0])
