from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from bert_core.embeddings import Embeddings, SinusoidalPositions
from tests.bert_core.oracle import Oracle, gap
from tests.tiny import random_packed, tiny_config, tiny_model

LENGTHS = (13, 7, 1)


@pytest.mark.parametrize("kind", ["absolute", "sinusoidal", "relative_key", "relative_key_query"])
@pytest.mark.parametrize("segments", [1, 7])
def test_embeddings_are_the_normalised_sum(kind: str, segments: int) -> None:
    config = tiny_config(position_embedding_type=kind, type_vocab_size=segments, num_hidden_layers=0)
    model = tiny_model(config, dtype=torch.float64)
    packed = random_packed(config, lengths=LENGTHS)
    got = model.bert.embeddings(packed)
    assert packed.ids_T is not None
    for run in packed.runs:
        answer = Oracle(model, config)(
            packed.ids_T[run.tokens], segments=packed.segments_T[run.tokens], positions=packed.positions_T[run.tokens]
        )
        assert gap(got[run.tokens], answer.last) < 1e-9


def test_given_embeddings_take_the_place_of_the_token_rows_alone() -> None:
    model = tiny_model()
    packed = random_packed(lengths=LENGTHS)
    assert packed.ids_T is not None
    rows = model.bert.embeddings.token(packed.ids_T)
    given = replace(packed, ids_T=None, embeds_TD=rows)
    assert torch.equal(model.bert.embeddings(given), model.bert.embeddings(packed))


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
def test_relative_positions_do_not_enter_here(kind: str) -> None:
    model = tiny_model(tiny_config(position_embedding_type=kind))
    packed = random_packed(lengths=LENGTHS)
    moved = replace(packed, positions_T=packed.positions_T + 5)
    assert model.bert.embeddings.position is None
    assert torch.equal(model.bert.embeddings(moved), model.bert.embeddings(packed))


@pytest.mark.parametrize("width", [1, 2, 7, 20, 33])
def test_sinusoidal_positions_are_the_papers(width: int) -> None:
    table = SinusoidalPositions(41, width).double()
    table.reset_buffer(device=torch.device("cpu"), dtype=torch.float64)
    got = table(torch.tensor([0, 1, 40, 13]))
    for row, position in enumerate([0, 1, 40, 13]):
        for column in range(width):
            angle = position / 10000 ** (2 * (column // 2) / width)
            right = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert float(got[row, column]) == pytest.approx(right, abs=1e-12)


def test_the_sinusoidal_table_is_not_stored_and_not_learned() -> None:
    embeddings = Embeddings(tiny_config(position_embedding_type="sinusoidal"))
    assert not [name for name in embeddings.state_dict() if "position" in name]
    assert not [name for name, _ in embeddings.named_parameters() if "position" in name]


def test_a_model_from_the_meta_device_gets_its_table_back() -> None:
    with torch.device("meta"):
        positions = SinusoidalPositions(41, 7)
    assert positions.table_PD.is_meta
    positions.reset_buffer(device=torch.device("cpu"), dtype=torch.bfloat16)
    assert torch.equal(positions.table_PD, SinusoidalPositions(41, 7).table_PD.bfloat16())


def test_dropout_after_the_norm_in_training_alone() -> None:
    config = tiny_config(hidden_dropout_prob=0.4)
    embeddings = tiny_model(config).bert.embeddings
    packed = random_packed(config, lengths=(13,) * 60)
    right = embeddings(packed)
    torch.manual_seed(0)
    dropped = embeddings.train()(packed)
    zero = dropped == 0
    assert float(zero.float().mean()) == pytest.approx(0.4, abs=0.02)
    assert torch.allclose(dropped[~zero], right[~zero] / 0.6, atol=1e-6, rtol=1e-6)
    assert torch.equal(embeddings.eval()(packed), right)


@pytest.mark.parametrize("pad", [None, 5])
def test_the_padding_row_gets_no_gradient_from_the_look_up(pad: int | None) -> None:
    config = tiny_config(pad_token_id=pad)
    embeddings = tiny_model(config).bert.embeddings
    packed = replace(random_packed(config, lengths=(3,)), ids_T=torch.tensor([5, 6, 7]))
    (embeddings(packed) * torch.arange(20.0)).sum().backward()
    gradient = embeddings.token.weight.grad
    assert gradient is not None
    assert [bool(gradient[row].abs().sum() > 0) for row in (5, 6, 7, 8)] == [pad is None, True, True, False]
