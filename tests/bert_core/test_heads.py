from __future__ import annotations

import pytest
import torch

from bert_core.heads import Heads, MaskedLMHead, NextSentenceHead, Pooler, mean_of_tokens
from bert_core.packing import PackedTokens
from tests.bert_core.oracle import Oracle, gap
from tests.tiny import random_packed, tiny_config, tiny_model

LENGTHS = (13, 7, 1)


def packed_lengths(*lengths: int) -> PackedTokens:
    zeros_T = torch.zeros(sum(lengths), dtype=torch.long)
    return PackedTokens(ids_T=zeros_T, segments_T=zeros_T, positions_T=zeros_T, lengths=lengths)


def test_the_mean_is_of_a_sequences_own_tokens() -> None:
    hidden_TD = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 4.0], [6.0, 6.0]])
    assert mean_of_tokens(hidden_TD, packed_lengths(2, 3)).tolist() == [[1.0, 0.0], [2.0, 4.0]]
    assert mean_of_tokens(hidden_TD, packed_lengths(1, 1, 3))[:2].tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_a_neighbours_nan_stays_with_it() -> None:
    hidden_TD = torch.tensor([[1.0], [torch.nan], [3.0]])
    means_ND = mean_of_tokens(hidden_TD, packed_lengths(1, 1, 1))
    assert means_ND.isnan().flatten().tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    # A float16 sum of these overflows, a bfloat16 one stops growing at 256 summands.
    hidden_TD = torch.full((4096, 3), 100.0, dtype=dtype)
    means_ND = mean_of_tokens(hidden_TD, packed_lengths(4096))
    assert means_ND.dtype == dtype
    assert means_ND.tolist() == [[100.0] * 3]


def test_the_mean_of_float64_is_not_rounded_and_has_gradients() -> None:
    hidden_TD = torch.rand(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    packed = packed_lengths(2, 4, 1)
    means_ND = mean_of_tokens(hidden_TD, packed)
    right_ND = torch.stack([rows.mean(0) for rows in hidden_TD.split([2, 4, 1])])
    assert torch.allclose(means_ND, right_ND, atol=1e-15, rtol=0)
    assert torch.autograd.gradcheck(lambda hidden: mean_of_tokens(hidden, packed), hidden_TD)


@pytest.mark.parametrize("kind", ["first_token_transform", "all_token_average"])
def test_the_pooler_is_dense_and_tanh_on_the_first_token_or_the_mean(kind: str) -> None:
    config = tiny_config(pooler_type=kind)
    model = tiny_model(config, dtype=torch.float64)
    packed = random_packed(config, lengths=LENGTHS)
    assert isinstance(model.bert.pooler, Pooler)
    pooled = model.bert.pooler.pool(model.bert.encode(packed), packed)
    assert packed.ids_T is not None
    for number, run in enumerate(packed.runs):
        right = Oracle(model, config)(packed.ids_T[run.tokens], segments=packed.segments_T[run.tokens])
        assert gap(pooled[number], right.pooled) < 1e-9


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu", None])
def test_both_heads_are_the_formula(act: str | None) -> None:
    config = tiny_config(hidden_act=act)
    model = tiny_model(config, dtype=torch.float64)
    packed = random_packed(config, lengths=(7,))
    hidden_TD = model.bert.encode(packed)
    assert packed.ids_T is not None
    right = Oracle(model, config)(packed.ids_T, segments=packed.segments_T)
    assert isinstance(model.mlm, MaskedLMHead)
    assert gap(model.mlm(hidden_TD), right.prediction_logits) < 1e-9
    assert gap(model.mlm(hidden_TD[[5, 2]]), right.prediction_logits[[5, 2]]) < 1e-9
    assert isinstance(model.bert.pooler, Pooler)
    assert isinstance(model.nsp, NextSentenceHead)
    assert gap(model.nsp(model.bert.pooler.pool(hidden_TD, packed)[0]), right.relationship_logits) < 1e-9


def test_which_heads_are_there() -> None:
    assert Heads().present == ("pooler", "mlm", "nsp")
    assert Heads().missing == ()
    heads = Heads(nsp=False, mlm=False)
    assert (heads.present, heads.missing) == (("pooler",), ("mlm", "nsp"))


def test_a_next_sentence_head_needs_a_pooler() -> None:
    with pytest.raises(ValueError, match=r"^nsp: .* needs pooler=True$"):
        Heads(pooler=False)
