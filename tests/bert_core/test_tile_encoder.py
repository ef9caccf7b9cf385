"""All layers in one call have the very bits that they have one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch import Tensor

from bert_core.attention_options import AttentionOptions
from bert_core.config import BertConfig
from bert_core.encoder import Encoder, EncoderOutput
from bert_core.model import BertForPreTraining
from bert_core.packing import PackedTokens, WantedRows
from bert_core.tile_encoder import TileEncoder
from bert_core.tiles import tiles
from tests.bert_core.test_tiles import NO_TILES, computing_threads
from tests.tiny import random_packed, tiny_config, tiny_model

pytestmark = pytest.mark.skipif(tiles() is None, reason=NO_TILES)

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
        found = encoder(hidden_TD, packed, wanted=wanted).hidden_RD
        assert torch.equal(found, stack(encoder)(hidden_TD, packed, wanted=wanted))
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
        lambda encoder, *given: encoder.train()(*given),
    ],
    ids=["head masks", "hidden states", "weights", "training"],
)
def test_what_it_cannot_do_is_done_layer_by_layer(call: Callable[..., object]) -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    encoder = prepacked(config()).bert.encoder
    with mock.patch.object(encoder, "_on_tiles", mock.Mock(side_effect=AssertionError("asked for"))):
        call(encoder, hidden(packed, config()), packed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": torch.float32}, r"^hidden: torch.float32 \[92, 96\] on cpu, where bfloat16 \[92, 96\] on the CPU"),
        ({"width": 64}, r"^hidden: torch.bfloat16 \[92, 64\] on cpu, where bfloat16 \[92, 96\] on the CPU is needed$"),
        ({"requires_grad": True}, "^hidden: prepacked weights give no gradients$"),
        ({"lengths": (20, 20)}, "offsets that do not begin at 0 or descend, or queries without keys"),
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
            packed = replace(packed, given_offsets_N1=torch.tensor(offsets))
    with pytest.raises(ValueError, match=message):
        stack(prepacked(config()).bert.encoder)(hidden_TD, packed)


@pytest.mark.parametrize(
    ("rows", "counts", "fault"),
    [
        ([0, 3, 92], (2, 1, 0, 0, 0, 0), "not among the tokens"),
        ([0, -1], (2, 0, 0, 0, 0, 0), "not among the tokens"),
        ([0, 3, 4], (2, 0, 0, 0, 0, 0), "not int64, or not as many as their offsets say"),
        ([0], (2, 0, 0, 0, 0, 0), "not int64, or not as many as their offsets say"),
        ([0, 3], (2, 0), "not int64, or not as many as their offsets say"),
        ([0.0, 3.0], (2, 0, 0, 0, 0, 0), "not int64, or not as many as their offsets say"),
        ([0] * 93, (93, 0, 0, 0, 0, 0), "not int64, or not as many as their offsets say"),
    ],
)
def test_wanted_rows_that_are_not_there_are_refused(rows: list[float], counts: tuple[int, ...], fault: str) -> None:
    packed = random_packed(config(), lengths=LENGTHS)
    wanted = WantedRows(rows_R=torch.tensor(rows), counts=counts)
    with pytest.raises(ValueError, match=f"^wanted rows: {fault}$"):
        stack(prepacked(config()).bert.encoder)(hidden(packed, config()), packed, wanted=wanted)
