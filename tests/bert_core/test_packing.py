from __future__ import annotations

import pytest
import torch

from bert_core.packing import PackedTokens, WantedRows, offsets_of, pack, runs_of, unpack
from tests.tiny import COLUMNS, ROWS, masks, random_ids, random_packed, random_segments


def test_runs_group_neighbours_of_equal_length() -> None:
    runs = runs_of([3, 3, 5, 3, 1, 1, 1])
    shapes = [(run.first_sequence, run.first_token, run.first_query, run.count, run.length) for run in runs]
    assert shapes == [(0, 0, 0, 2, 3), (2, 6, 6, 1, 5), (3, 11, 11, 1, 3), (4, 14, 14, 3, 1)]
    assert [run.queries for run in runs] == [3, 5, 3, 1]
    assert [run.sequences for run in runs] == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 7)]
    assert [run.tokens for run in runs] == [slice(0, 6), slice(6, 11), slice(11, 14), slice(14, 17)]
    assert [run.query_rows for run in runs] == [run.tokens for run in runs]


def test_runs_of_wanted_rows_also_need_equal_counts() -> None:
    runs = runs_of([4, 4, 4, 4, 2], queries=[1, 1, 0, 2, 2])
    shapes = [(run.first_token, run.first_query, run.count, run.length, run.queries) for run in runs]
    assert shapes == [(0, 0, 2, 4, 1), (8, 2, 1, 4, 0), (12, 2, 1, 4, 2), (16, 4, 1, 2, 2)]
    assert [run.query_rows for run in runs] == [slice(0, 2), slice(2, 2), slice(2, 4), slice(4, 6)]


@pytest.mark.parametrize("lengths", [[7], [1, 2, 3], [5] * 9, [2, 2, 1, 2, 2]])
def test_runs_cover_all_tokens_in_order(lengths: list[int]) -> None:
    tokens = [token for run in runs_of(lengths) for token in range(run.tokens.start, run.tokens.stop)]
    sequences = [n for run in runs_of(lengths) for n in range(run.sequences.start, run.sequences.stop)]
    assert tokens == list(range(sum(lengths)))
    assert sequences == list(range(len(lengths)))


def test_no_sequences_no_runs() -> None:
    assert runs_of([]) == ()


def test_offsets_are_running_sums() -> None:
    offsets = offsets_of([3, 1, 4], device=torch.device("cpu"))
    assert offsets.dtype == torch.int32
    assert offsets.tolist() == [0, 3, 4, 8]


def test_packed_tokens_know_where_sequences_lie() -> None:
    packed = random_packed(lengths=(3, 7, 7, 1))
    assert packed.offsets_N1.tolist() == [0, 3, 10, 17, 18]
    assert packed.first_rows_N.tolist() == [0, 3, 10, 17]
    assert packed.first_rows_N.dtype == torch.int64
    assert packed.longest == 7
    assert packed.runs == runs_of([3, 7, 7, 1])


def test_wanted_rows_know_their_offsets() -> None:
    wanted = WantedRows(rows_R=torch.tensor([1, 5, 6]), counts=[1, 0, 2])
    assert wanted.offsets_N1.tolist() == [0, 1, 1, 3]


def packed_of(mask: torch.Tensor, *, embeds: torch.Tensor | None = None) -> tuple[PackedTokens, torch.Tensor]:
    return pack(
        random_ids() if embeds is None else None,
        inputs_embeds=embeds,
        token_type_ids=random_segments(),
        position_ids=torch.arange(COLUMNS).expand(ROWS, COLUMNS),
        keep_BL=mask.bool(),
    )


@pytest.mark.parametrize("kind", ["right", "left", "holes"])
def test_pack_keeps_the_kept_tokens_in_order_with_their_positions(kind: str) -> None:
    mask = masks()[kind]
    assert mask is not None
    packed, places_T = packed_of(mask)
    kept = [(row, column) for row in range(ROWS) for column in range(COLUMNS) if mask[row, column]]
    assert packed.ids_T is not None
    assert packed.ids_T.tolist() == [int(random_ids()[place]) for place in kept]
    assert packed.segments_T.tolist() == [int(random_segments()[place]) for place in kept]
    assert packed.positions_T.tolist() == [column for _, column in kept]
    assert packed.lengths == mask.sum(1).tolist()
    assert places_T.tolist() == [row * COLUMNS + column for row, column in kept]
    assert packed.embeds_TD is None


@pytest.mark.parametrize("kind", ["right", "left", "holes"])
def test_unpack_undoes_pack_with_zeros_at_padding(kind: str) -> None:
    mask = masks()[kind]
    assert mask is not None
    embeds = torch.randn(ROWS, COLUMNS, 20, generator=torch.Generator().manual_seed(0))
    packed, places_T = packed_of(mask, embeds=embeds)
    assert packed.ids_T is None
    assert packed.embeds_TD is not None
    assert torch.equal(unpack(packed.embeds_TD, places_T=places_T, shape=(ROWS, COLUMNS)), embeds * mask[..., None])
    assert torch.equal(unpack(packed.segments_T, places_T=places_T, shape=(ROWS, COLUMNS)), random_segments() * mask)


def test_unpack_puts_zeros_where_nan_was_dropped() -> None:
    mask = masks()["holes"]
    assert mask is not None
    embeds = torch.ones(ROWS, COLUMNS, 20).masked_fill(mask[..., None] == 0, torch.nan)
    packed, places_T = packed_of(mask, embeds=embeds)
    assert packed.embeds_TD is not None
    padded = unpack(packed.embeds_TD, places_T=places_T, shape=(ROWS, COLUMNS))
    assert torch.equal(padded, mask[..., None].expand_as(padded).float())


def test_gradients_flow_through_pack_and_unpack() -> None:
    mask = masks()["holes"]
    assert mask is not None
    embeds = torch.zeros(ROWS, COLUMNS, 20, requires_grad=True)
    packed, places_T = packed_of(mask, embeds=embeds)
    assert packed.embeds_TD is not None
    (unpack(packed.embeds_TD, places_T=places_T, shape=(ROWS, COLUMNS)) * 3).sum().backward()
    assert embeds.grad is not None
    assert torch.equal(embeds.grad, 3.0 * mask[..., None].expand_as(embeds))
