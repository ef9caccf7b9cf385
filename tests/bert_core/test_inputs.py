from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.inputs import PaddedBatch, prepare
from tests.tiny import COLUMNS, ROWS, TINY_CONFIG, masks, random_ids, random_segments, tiny_config

SHAPE = (ROWS, COLUMNS)
EMBEDS = torch.zeros(ROWS, COLUMNS, 20)


def prepared(
    input_ids: Tensor | None = None, *, config: BertConfig = TINY_CONFIG, position_offset: int = 0, **given: Tensor
) -> PaddedBatch:
    names = ("attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
    arguments: dict[str, Any] = {name: given.get(name) for name in names}
    return prepare(config, input_ids, position_offset=position_offset, dtype=torch.float32, **arguments)


def ids_of(batch: PaddedBatch) -> list[int]:
    assert batch.packed.ids_T is not None
    return batch.packed.ids_T.tolist()


def test_defaults_are_segment_zero_and_positions_from_zero() -> None:
    batch = prepared(random_ids())
    assert ids_of(batch) == random_ids().flatten().tolist()
    assert batch.packed.segments_T.tolist() == [0] * ROWS * COLUMNS
    assert batch.packed.positions_T.tolist() == list(range(COLUMNS)) * ROWS
    assert batch.packed.lengths == [COLUMNS] * ROWS
    assert batch.shape == SHAPE
    assert batch.pair_mask_BLL is None


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32])
def test_a_mask_of_any_dtype_drops_tokens_and_keeps_positions(dtype: torch.dtype) -> None:
    mask = torch.tensor([[0, 1, 0, 1, 1], [1, 0, 0, 0, 0]]).to(dtype)
    batch = prepared(torch.arange(1, 11).view(2, 5), attention_mask=mask)
    assert ids_of(batch) == [2, 4, 5, 6]
    assert batch.packed.positions_T.tolist() == [1, 3, 4, 0]
    assert batch.packed.lengths == [3, 1]


def test_a_missing_mask_is_derived_from_the_padding_id() -> None:
    ids = torch.tensor([[5, 0, 7, 0], [9, 8, 7, 6]])
    assert ids_of(prepared(ids)) == [5, 7, 9, 8, 7, 6]
    assert ids_of(prepared(ids, config=tiny_config(pad_token_id=7))) == [5, 0, 0, 9, 8, 6]
    assert ids_of(prepared(ids, config=tiny_config(pad_token_id=None))) == [5, 0, 7, 0, 9, 8, 7, 6]
    assert ids_of(prepared(ids, attention_mask=torch.ones(2, 4))) == [5, 0, 7, 0, 9, 8, 7, 6]


def test_with_embeddings_nothing_is_padding() -> None:
    batch = prepared(inputs_embeds=EMBEDS)
    assert batch.packed.ids_T is None
    assert batch.packed.lengths == [COLUMNS] * ROWS


def test_a_pair_mask_keeps_all_rows_padding_ids_too() -> None:
    mask = torch.eye(3).expand(2, 3, 3)
    batch = prepared(torch.tensor([[5, 0, 7], [0, 0, 0]]), attention_mask=mask)
    assert ids_of(batch) == [5, 0, 7, 0, 0, 0]
    assert batch.pair_mask_BLL is not None
    assert torch.equal(batch.pair_mask_BLL, mask.bool())


@pytest.mark.parametrize("shape", [SHAPE, (1, COLUMNS), (COLUMNS,)])
def test_positions_may_be_given(shape: tuple[int, ...]) -> None:
    positions = torch.randint(41, shape, generator=torch.Generator().manual_seed(0))
    mask = masks()["holes"]
    assert mask is not None
    batch = prepared(random_ids(), position_ids=positions, attention_mask=mask)
    assert torch.equal(batch.packed.positions_T, positions.expand(SHAPE)[mask.bool()])


@pytest.mark.parametrize("offset", [1, 28])
def test_positions_may_be_offset(offset: int) -> None:
    batch = prepared(random_ids(), position_offset=offset)
    assert batch.packed.positions_T.tolist() == list(range(offset, offset + COLUMNS)) * ROWS


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_integers_of_any_width_become_int64(dtype: torch.dtype) -> None:
    positions = torch.arange(COLUMNS)
    batch = prepared(
        random_ids().to(dtype), token_type_ids=random_segments().to(dtype), position_ids=positions.to(dtype)
    )
    packed = batch.packed
    assert packed.ids_T is not None
    assert {packed.ids_T.dtype, packed.segments_T.dtype, packed.positions_T.dtype} == {torch.int64}
    assert torch.equal(packed.segments_T, random_segments().flatten())
    assert packed.positions_T.tolist() == list(range(COLUMNS)) * ROWS


def changed(tensor: Tensor, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor[3, 2] = value
    return tensor


ONES = torch.ones(SHAPE, dtype=torch.long)
IDS = random_ids()
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({}, "input_ids, inputs_embeds: give exactly one of the two"),
    ({"input_ids": IDS, "inputs_embeds": EMBEDS}, "input_ids, inputs_embeds: give exactly one of the two"),
    ({"input_ids": IDS[0]}, "input_ids: [13] is not [B, L]"),
    ({"input_ids": IDS[:, :, None]}, "input_ids: [6, 13, 1] is not [B, L]"),
    ({"input_ids": IDS[:0]}, "input_ids, inputs_embeds: a batch of 0 rows and 13 columns is empty"),
    ({"input_ids": IDS[:, :0]}, "input_ids, inputs_embeds: a batch of 6 rows and 0 columns is empty"),
    ({"input_ids": changed(IDS, 99)}, "input_ids: 99 is not from 0 to 98"),
    ({"input_ids": changed(IDS, -1)}, "input_ids: -1 is not from 0 to 98"),
    ({"input_ids": IDS.float()}, "input_ids: torch.float32 is not an integer type"),
    ({"input_ids": IDS.bool()}, "input_ids: torch.bool is not an integer type"),
    ({"input_ids": IDS.tolist()}, "input_ids: a list is not a torch.Tensor"),
    ({"input_ids": IDS.to_sparse()}, "input_ids: torch.sparse_coo is not a dense layout, torch.strided"),
    ({"input_ids": IDS.to(torch.uint16)}, "input_ids: torch.uint16 is not an integer type, torch.int64, "),
    ({"input_ids": IDS.to(torch.complex64)}, "input_ids: torch.complex64 is not an integer type"),
    ({"inputs_embeds": EMBEDS.tolist()}, "inputs_embeds: a list is not a torch.Tensor"),
    ({"inputs_embeds": EMBEDS.to(torch.complex64)}, "inputs_embeds: torch.complex64 is not a floating-point type"),
    ({"inputs_embeds": EMBEDS.double()}, "inputs_embeds: torch.float64 does not fit into the model's dtype, torch."),
    ({"input_ids": IDS, "token_type_ids": ONES.tolist()}, "token_type_ids: a list is not a torch.Tensor"),
    ({"input_ids": IDS, "position_ids": ONES.tolist()}, "position_ids: a list is not a torch.Tensor"),
    ({"input_ids": IDS, "attention_mask": ONES.tolist()}, "attention_mask: a list is not a torch.Tensor"),
    ({"input_ids": IDS, "attention_mask": ONES.to_sparse()}, "attention_mask: torch.sparse_coo is not a dense layout"),
    ({"input_ids": IDS, "position_offset": "1"}, "position_offset: '1' is not an integer"),
    ({"input_ids": IDS, "position_offset": 1.0}, "position_offset: 1.0 is not an integer"),
    ({"inputs_embeds": EMBEDS[0]}, "inputs_embeds: [13, 20] is not [B, L, 20]"),
    ({"inputs_embeds": EMBEDS[:, :, :19]}, "inputs_embeds: [6, 13, 19] is not [B, L, 20]"),
    ({"inputs_embeds": EMBEDS.long()}, "inputs_embeds: torch.int64 is not a floating-point type"),
    ({"input_ids": IDS, "token_type_ids": ONES[:, :5]}, "token_type_ids: [6, 5] is not [6, 13]"),
    ({"input_ids": IDS, "token_type_ids": ONES[0]}, "token_type_ids: [13] is not [6, 13]"),
    ({"input_ids": IDS, "token_type_ids": changed(ONES, 7)}, "token_type_ids: 7 is not from 0 to 6"),
    ({"input_ids": IDS, "token_type_ids": changed(ONES, -2)}, "token_type_ids: -2 is not from 0 to 6"),
    ({"input_ids": IDS, "token_type_ids": ONES.double()}, "token_type_ids: torch.float64 is not an integer type"),
    ({"input_ids": IDS, "position_ids": ONES[:2]}, "position_ids: [2, 13] is not [6, 13]"),
    ({"input_ids": IDS, "position_ids": changed(ONES, 41)}, "position_ids: 41 is not from 0 to 40"),
    ({"input_ids": IDS, "position_ids": changed(ONES, -1)}, "position_ids: -1 is not from 0 to 40"),
    ({"input_ids": IDS, "position_ids": ONES.float()}, "position_ids: torch.float32 is not an integer type"),
    (
        {"input_ids": IDS, "position_ids": ONES, "position_offset": 1},
        "position_ids, position_offset: give at most one of the two",
    ),
    ({"input_ids": IDS, "position_offset": 29}, "input_ids, inputs_embeds: 13 columns from position_offset 29 on do"),
    ({"input_ids": IDS, "position_offset": -1}, "input_ids, inputs_embeds: 13 columns from position_offset -1 on do"),
    (
        {"input_ids": IDS.repeat(1, 4)},
        "input_ids, inputs_embeds: 52 columns from position_offset 0 on do not lie between 0 and "
        "max_position_embeddings, 41",
    ),
    ({"input_ids": IDS, "attention_mask": ONES[:, :5]}, "attention_mask: [6, 5] is not [6, 13] or [6, 13, 13]"),
    ({"input_ids": IDS, "attention_mask": ONES[:, None, None]}, "attention_mask: [6, 1, 1, 13] is not [6, 13] or"),
    ({"input_ids": IDS, "attention_mask": changed(ONES, 2)}, "attention_mask: values must be 0 or false"),
    ({"input_ids": IDS, "attention_mask": changed(ONES.float(), 0.5)}, "attention_mask: values must be 0 or false"),
    ({"input_ids": IDS, "attention_mask": changed(ONES.float(), torch.nan)}, "attention_mask: values must be 0 or"),
    ({"input_ids": IDS, "attention_mask": (1.0 - ONES) * -10000.0 + changed(ONES * 0, -1e4)}, "attention_mask: values"),
    ({"input_ids": IDS, "attention_mask": (torch.arange(6) != 4)[:, None].expand(SHAPE)}, "attention_mask: every row"),
    (
        {"input_ids": IDS, "attention_mask": (torch.arange(78).view(6, 13, 1) != 7).expand(6, 13, 13)},
        "attention_mask: every row must keep at least one token to attend to",
    ),
    ({"input_ids": changed(IDS, 0) * (torch.arange(6) != 3)[:, None]}, "input_ids: a row holds only padding; give an"),
]


@pytest.mark.parametrize(("arguments", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_faults_are_told_by_argument_fault_and_rule(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        prepared(arguments.pop("input_ids", None), **dict(arguments))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_embeddings_may_be_narrower_than_the_model(dtype: torch.dtype) -> None:
    embeds_TD = prepared(inputs_embeds=EMBEDS.to(dtype)).packed.embeds_TD
    assert embeds_TD is not None
    assert embeds_TD.dtype == dtype


def test_unpack_puts_tokens_back_in_their_places() -> None:
    mask = masks()["holes"]
    assert mask is not None
    batch = prepared(random_ids(), attention_mask=mask)
    assert batch.packed.ids_T is not None
    assert torch.equal(batch.unpack(batch.packed.ids_T), random_ids() * mask)


@pytest.mark.parametrize("kind", ["right", "left", "holes"])
def test_attention_weights_go_back_to_their_rows_and_columns(kind: str) -> None:
    mask = masks()[kind]
    assert mask is not None
    batch = prepared(random_ids(), attention_mask=mask)
    right = torch.rand(ROWS, 4, COLUMNS, COLUMNS, generator=torch.Generator().manual_seed(0))
    right = right * mask[:, None, :, None] * mask[:, None, None, :]
    run_weights = []
    for run in batch.packed.runs:
        rows = [right[row][:, mask[row].bool()][:, :, mask[row].bool()] for row in range(ROWS)[run.sequences]]
        run_weights.append(torch.stack(rows))
    assert torch.equal(batch.unpack_weights(run_weights), right)
