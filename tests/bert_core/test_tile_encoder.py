"""All layers in one call have the very bits that they have one by one."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from bert_core.attention_options import AttentionOptions
from bert_core.config import BertConfig
from bert_core.encoder import Encoder, EncoderLayer, EncoderOutput
from bert_core.model import BertForPreTraining
from bert_core.packing import PackedTokens, WantedRows
from bert_core.tile_encoder import TileEncoder, TileLayer
from bert_core.tiles import tiles
from tests.bert_core.test_tiles import computing_threads, needs_tiles
from tests.tiny import random_packed, tiny_config, tiny_model

pytestmark = needs_tiles

LENGTHS = (20, 20, 13, 7, 1, 31)
SOME = WantedRows(rows_R=torch.tensor([0, 3, 20, 53, 60]), counts=(2, 1, 0, 1, 1, 0))
NONE = WantedRows(rows_R=torch.tensor([], dtype=torch.int64), counts=(0,) * 6)
EVERY = WantedRows(rows_R=torch.arange(92), counts=LENGTHS)


def config(**changes: object) -> BertConfig:
    """Sizes that fill tiles, all different."""
    return tiny_config(**{"hidden_size": 96, "num_attention_heads": 3, "intermediate_size": 160} | changes)


def prepacked(made: BertConfig, *, prune: dict[int, list[int]] | None = None) -> BertForPreTraining:
    model = tiny_model(made).requires_grad_(False).bfloat16()
    model.prune_heads(prune or {})
    model.prepack()
    return model


def stack(encoder: Encoder) -> TileEncoder:
    assert encoder._on_tiles is not None
    return encoder._on_tiles


def hidden(packed: PackedTokens, made: BertConfig) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(packed.positions_T), made.hidden_size, generator=generator).bfloat16()


def layer_by_layer(encoder: Encoder, hidden_TD: Tensor, packed: PackedTokens, wanted: WantedRows | None) -> Tensor:
    with mock.patch.object(encoder, "_on_tiles", None):
        output = encoder(hidden_TD, packed, wanted=wanted)
    assert isinstance(output, EncoderOutput)
    return output.hidden_RD


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("wanted", [None, SOME, NONE, EVERY], ids=["all", "some", "none", "every"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_hidden_layers": 1},
        {"hidden_act": "gelu_new"},
        {"hidden_act": "silu"},
        {"hidden_size": 192, "num_attention_heads": 3},
        {"intermediate_size": 544},
    ],
)
def test_it_has_the_bits_of_layer_by_layer(changes: dict[str, object], wanted: WantedRows | None, threads: int) -> None:
    made = config(**changes)
    packed = random_packed(made, lengths=LENGTHS)
    encoder, hidden_TD = prepacked(made).bert.encoder, hidden(packed, made)
    before = hidden_TD.clone()
    with computing_threads(threads):
        with mock.patch.object(encoder, "_on_tiles", mock.Mock(wraps=stack(encoder))) as used:
            found = encoder(hidden_TD, packed, wanted=wanted).hidden_RD
        used.assert_called_once()
        assert torch.equal(found, layer_by_layer(encoder, hidden_TD, packed, wanted))
    assert found.shape == (len(before) if wanted is None else len(wanted.rows_R), made.hidden_size)
    assert torch.equal(hidden_TD, before)


@pytest.mark.parametrize("wanted", [None, SOME], ids=["all", "some"])
def test_pruned_heads(wanted: WantedRows | None) -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    encoder = prepacked(config(), prune={0: [1], 2: [0, 2]}).bert.encoder
    hidden_TD = hidden(packed, config())
    right = layer_by_layer(encoder, hidden_TD, packed, wanted)
    assert torch.equal(stack(encoder)(hidden_TD, packed, wanted=wanted), right)


def test_a_text_alone_and_no_text() -> None:
    encoder = prepacked(config()).bert.encoder
    no_ids = torch.tensor([], dtype=torch.int64)
    of_none = PackedTokens(ids_T=no_ids, segments_T=no_ids, positions_T=no_ids, lengths=())
    for packed in (random_packed(config(), lengths=(1,)), random_packed(config(), lengths=(300,)), of_none):
        hidden_TD = hidden(packed, config())
        right = layer_by_layer(encoder, hidden_TD, packed, None)
        assert torch.equal(stack(encoder)(hidden_TD, packed), right)


def test_rows_may_lie_apart() -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    encoder, hidden_TD = prepacked(config()).bert.encoder, hidden(packed, config())
    apart = torch.cat([hidden_TD, hidden_TD], 1)[:, :96]
    assert torch.equal(stack(encoder)(apart, packed), stack(encoder)(hidden_TD, packed))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_placement": "pre"},
        {"hidden_act": "relu"},
        {"position_embedding_type": "relative_key"},
        {"num_attention_heads": 6},
        {"intermediate_size": 144},
        {"chunk_size_feed_forward": 16},
        {"use_torch_multi_head": True},
        {"num_hidden_layers": 0},
    ],
)
def test_it_serves_no_other_layers(changes: dict[str, object]) -> None:
    assert prepacked(config(**changes)).bert.encoder._on_tiles is None


def test_it_serves_no_other_dtype() -> None:
    model = tiny_model(config()).requires_grad_(False)
    model.prepack()
    assert model.bert.encoder._on_tiles is None


def masks_of(encoder: Encoder) -> Tensor:
    return torch.ones(len(encoder.layers), 3, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "call",
    [
        lambda encoder, *given: encoder(*given, head_masks=masks_of(encoder)),
        lambda encoder, *given: encoder(*given, keep_hidden_states=True),
        lambda encoder, *given: encoder(*given, options=AttentionOptions(weights=True)),
        lambda encoder, hidden_TD, _: encoder(
            hidden_TD[:26],
            random_packed(config(), lengths=(13, 13)),
            options=AttentionOptions(pair_mask_NLL=torch.ones(2, 13, 13, dtype=torch.bool)),
        ),
        lambda encoder, *given: encoder.train()(*given),
    ],
    ids=["head masks", "hidden states", "weights", "pair mask", "training"],
)
def test_what_it_cannot_do_is_done_layer_by_layer(call: Callable[..., object]) -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    encoder = prepacked(config()).bert.encoder
    with mock.patch.object(encoder, "_on_tiles", mock.Mock(side_effect=AssertionError("asked for"))):
        call(encoder, hidden(packed, config()), packed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": torch.float32}, r"^hidden: torch.float32 \[92, 96\] on cpu, where bfloat16 \[M, 96\] on the CPU"),
        ({"width": 64}, r"^hidden: torch.bfloat16 \[92, 64\] on cpu, where bfloat16 \[M, 96\] on the CPU is needed$"),
        ({"requires_grad": True}, "^hidden: prepacked weights give no gradients$"),
        ({"lengths": (20, 20)}, "^offsets: they end with 40, where there are 92 rows$"),
        ({"offsets": ()}, r"^offsets: \[0\] on cpu, where \[N \+ 1\] on the CPU is needed$"),
        ({"offsets": (0, 50, 40, 60, 70, 80, 92)}, "offsets that do not begin at 0 or descend"),
        ({"offsets": (1, 20, 40, 60, 70, 80, 92)}, "offsets that do not begin at 0 or descend"),
    ],
)
def test_rows_that_are_not_for_it_are_refused(changes: dict[str, object], message: str) -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    hidden_TD = hidden(packed, config())
    match changes:
        case {"dtype": torch.dtype() as dtype}:
            hidden_TD = hidden_TD.to(dtype)
        case {"width": int(width)}:
            hidden_TD = hidden_TD[:, :width]
        case {"requires_grad": True}:
            hidden_TD.requires_grad_()
        case {"lengths": tuple(lengths)}:
            packed = random_packed(config(), lengths=lengths)
        case {"offsets": offsets}:
            packed = replace(packed, given_offsets_N1=torch.tensor(offsets, dtype=torch.int32))
    with pytest.raises(ValueError, match=message):
        stack(prepacked(config()).bert.encoder)(hidden_TD, packed)


@pytest.mark.parametrize(
    ("rows", "counts", "fault"),
    [
        ([0, 3, 92], (2, 1, 0, 0, 0, 0), "wanted rows: not all among the 92 tokens"),
        ([0, -1], (2, 0, 0, 0, 0, 0), "wanted rows: not all among the 92 tokens"),
        ([0] * 93, (93, 0, 0, 0, 0, 0), "wanted rows: 93, where there are 92 tokens"),
        (
            [0.0, 3.0],
            (2, 0, 0, 0, 0, 0),
            r"wanted rows: torch.float32 \[2\] on cpu, where int64 \[R\] .*",
        ),
        (
            [[0, 3]],
            (2, 0, 0, 0, 0, 0),
            r"wanted rows: torch.int64 \[1, 2\] on cpu, where int64 \[R\] .*",
        ),
        ([0, 3, 4], (2, 0, 0, 0, 0, 0), "wanted rows' offsets: they end with 2, where there are 3 rows"),
        ([0, 3], (2, 0), "wanted rows: of 2 sequences, not 6"),
        ([0, 3], (3, -1, 0, 0, 0, 0), "attention: offsets that do not begin at 0 or descend, or queries without keys"),
    ],
)
def test_wanted_rows_that_are_not_there_are_refused(rows: list[Any], counts: tuple[int, ...], fault: str) -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    wanted = WantedRows(rows_R=torch.tensor(rows), counts=counts)
    with pytest.raises(ValueError, match=f"^{fault}$"):
        stack(prepacked(config()).bert.encoder)(hidden(packed, config()), packed, wanted=wanted)


def first_layer(made: BertConfig) -> TileLayer:
    layer = next(iter(prepacked(made).bert.encoder.layers))
    assert isinstance(layer, EncoderLayer)
    found = layer.on_tiles()
    assert found is not None
    return found


def test_layers_of_other_sizes_are_refused() -> None:
    kernels = tiles()
    assert kernels is not None
    first, other = first_layer(config()), first_layer(config(hidden_size=192, intermediate_size=224))
    with pytest.raises(ValueError, match=r"^layers: of hidden sizes \[96, 192\], where one is needed$"):
        TileEncoder([first, other], kernels)
    with pytest.raises(ValueError, match=r"^up: 192 to 224, where \(96, 224\) is needed$"):
        replace(first, products={**first.products, "up": other.products["up"]})
    with pytest.raises(ValueError, match="^attention_norm: 192 numbers, where rows have 96$"):
        replace(first, norms={**first.norms, "attention_norm": other.norms["attention_norm"]})


def test_what_the_addresses_are_of_is_kept() -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    encoder, hidden_TD = prepacked(config()).bert.encoder, hidden(packed, config())
    kept = stack(encoder)
    right = kept(hidden_TD, packed)
    del encoder
    gc.collect()
    [torch.full((300, 300), torch.nan) for _ in range(100)]
    assert torch.equal(kept(hidden_TD, packed), right)
