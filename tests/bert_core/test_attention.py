from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import varlen

from bert_core.attention import LONGEST_WRITTEN_OUT, SelfAttention
from bert_core.attention_options import AttentionOptions
from bert_core.config import BertConfig
from bert_core.packing import PackedTokens, WantedRows
from tests.bert_core.oracle import Array, Oracle, gap
from tests.tiny import random_packed, tiny_config, tiny_model

LENGTHS = (13, 7, 7, 1, 2)
KINDS = ("absolute", "sinusoidal", "relative_key", "relative_key_query")
WEIGHTS = AttentionOptions(weights=True)
ONE_LAYER = {"num_hidden_layers": 1}


class Case:
    """The attention of a one-layer model in float64, states to attend over, and the oracle's answers.

    Without gradients.
    """

    def __init__(self, *, lengths: tuple[int, ...] = LENGTHS, **changes: Any) -> None:
        self.config: BertConfig = tiny_config(**ONE_LAYER, **changes)
        self.model = tiny_model(self.config, dtype=torch.float64).requires_grad_(False)
        self.attention: SelfAttention = self.model.bert.attentions()[0]
        self.packed: PackedTokens = random_packed(self.config, lengths=lengths)
        generator = torch.Generator().manual_seed(1)
        self.hidden_TD = torch.randn(sum(lengths), 20, generator=generator, dtype=torch.float64)

    def right(self, *, factors: Tensor | None = None, pair_mask_NLL: Tensor | None = None) -> tuple[Array, list[Array]]:
        oracle = Oracle(self.model, self.config)
        outputs, probabilities = [], []
        for number, (begin, length) in enumerate(
            zip(self.packed.first_rows_N.tolist(), self.packed.lengths, strict=True)
        ):
            rows = slice(begin, begin + length)
            see = [[True] * length] * length if pair_mask_NLL is None else pair_mask_NLL[number].tolist()
            output, weights = oracle.attend(
                list(self.hidden_TD[rows].numpy()),
                "bert.encoder.layers.0",
                self.packed.positions_T[rows].tolist(),
                np.ones(4) if factors is None else factors.numpy(),
                see,
            )
            outputs.append(np.stack(output))
            probabilities.append(weights)
        return np.concatenate(outputs), probabilities


def flat(run_weights: list[Tensor]) -> list[Tensor]:
    """The weights `[H, L, L]` of each sequence."""
    return [weights_HLL for weights_NHLL in run_weights for weights_HLL in weights_NHLL]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [None, WEIGHTS], ids=["kernel", "explicit"])
def test_attention_is_the_formula(kind: str, options: AttentionOptions | None) -> None:
    case = Case(position_embedding_type=kind)
    output, weights = case.attention(case.hidden_TD, case.packed, options=options)
    right_output, right_weights = case.right()
    assert gap(output, right_output) < 1e-9
    assert len(flat(weights)) == (len(LENGTHS) if options else 0)
    for got, right in zip(flat(weights), right_weights, strict=bool(options)):
        assert gap(got, right) < 1e-9


@pytest.mark.parametrize(("dtype", "kernels"), [(torch.bfloat16, 1), (torch.float32, 3)])
def test_short_sequences_are_written_out_where_half_precision_trains_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, kernels: int
) -> None:
    case = Case(lengths=(LONGEST_WRITTEN_OUT + 1, LONGEST_WRITTEN_OUT, 40), max_position_embeddings=256)
    case.attention.to(dtype)
    hidden_TD = case.hidden_TD.to(dtype)
    right, _ = case.attention(hidden_TD, case.packed)
    calls = []

    def counted(*arguments: Any, kernel: Any = F.scaled_dot_product_attention, **named: Any) -> Tensor:
        calls.append(arguments)
        attended = kernel(*arguments, **named)
        assert isinstance(attended, Tensor)
        return attended

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    got, _ = case.attention.requires_grad_()(hidden_TD, case.packed)
    assert len(calls) == kernels
    scale = float(right.abs().max())
    assert torch.allclose(got.float(), right.float(), atol=scale * 2**-6, rtol=0)
    got.float().square().sum().backward()
    gradients = [parameter.grad for parameter in case.attention.parameters()]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
def test_distances_are_those_of_the_given_positions(kind: str) -> None:
    case = Case(position_embedding_type=kind, lengths=(7, 7))
    positions_T = torch.tensor([40, 3, 0, 9, 9, 1, 30, 6, 5, 4, 3, 2, 1, 0])
    case.packed = replace(case.packed, positions_T=positions_T)
    output, _ = case.attention(case.hidden_TD, case.packed)
    assert gap(output, case.right()[0]) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_mask_scales_the_probabilities_after_the_softmax(kind: str) -> None:
    case = Case(position_embedding_type=kind)
    factors = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    output, weights = case.attention(
        case.hidden_TD, case.packed, options=AttentionOptions(head_mask_H=factors, weights=True)
    )
    right_output, right_weights = case.right(factors=factors)
    assert gap(output, right_output) < 1e-9
    for got, right in zip(flat(weights), right_weights, strict=True):
        assert gap(got, right) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_mask_hides_keys_from_single_queries(kind: str) -> None:
    case = Case(position_embedding_type=kind, lengths=(7, 7, 7))
    mask_NLL = torch.rand(3, 7, 7, generator=torch.Generator().manual_seed(2)) < 0.4
    mask_NLL |= torch.eye(7, dtype=torch.bool).roll(2, 0)
    output, weights = case.attention(
        case.hidden_TD, case.packed, options=AttentionOptions(pair_mask_NLL=mask_NLL, weights=True)
    )
    right_output, right_weights = case.right(pair_mask_NLL=mask_NLL)
    assert gap(output, right_output) < 1e-9
    for got, right in zip(flat(weights), right_weights, strict=True):
        assert gap(got, right) < 1e-9
    hidden = ~mask_NLL[:, None].expand(-1, 4, -1, -1)
    assert not torch.stack(flat(weights))[hidden].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("score", [-12000.0, -16.0, 12000.0])
def test_hidden_keys_have_probability_zero_whatever_the_scores(dtype: torch.dtype, score: float) -> None:
    case = Case(lengths=(7,))
    with torch.no_grad():
        case.attention.qkv.weight.zero_()
        # Every score before scaling is 5 * q * k, the true score score / sqrt(5) * sqrt(5).
        case.attention.qkv.bias[:20] = score / math.sqrt(5)
        case.attention.qkv.bias[20:40] = 1.0
    mask_NLL = torch.ones(1, 7, 7, dtype=torch.bool)
    mask_NLL[0, :, 4:] = False
    case.attention.to(dtype)
    output, weights = case.attention(
        case.hidden_TD.to(dtype), case.packed, options=AttentionOptions(pair_mask_NLL=mask_NLL, weights=True)
    )
    assert bool(output.isfinite().all())
    assert weights[0].dtype == dtype
    assert not weights[0][..., 4:].any()
    assert torch.equal(weights[0][..., :4], torch.full((1, 4, 7, 4), 0.25, dtype=dtype))


def test_weights_of_half_precision_are_summed_in_float32() -> None:
    case = Case(lengths=(41,))
    case.attention.bfloat16()
    _, weights = case.attention(case.hidden_TD.bfloat16(), case.packed, options=WEIGHTS)
    sums = weights[0].detach().float().sum(-1)
    assert float((sums - 1).abs().max()) < 2**-8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head_mask", [False, True])
@pytest.mark.parametrize(
    "rows_of_each", [[[0], [0], [0], [0], [0]], [[0, 5, 12], [], [1, 6], [0], []], [[], [2], [], [], [0, 1]], [[]] * 5]
)
def test_wanted_rows_are_those_of_the_full_pass(kind: str, head_mask: bool, rows_of_each: list[list[int]]) -> None:
    case = Case(position_embedding_type=kind)
    options = AttentionOptions(head_mask_H=torch.tensor([0.5, 1.0, 0.0, 3.0]).double() if head_mask else None)
    rows = [int(first) + row for first, own in zip(case.packed.first_rows_N, rows_of_each, strict=True) for row in own]
    wanted = WantedRows(rows_R=torch.tensor(rows, dtype=torch.long), counts=[len(own) for own in rows_of_each])
    full, _ = case.attention(case.hidden_TD, case.packed, options=options)
    got, _ = case.attention(case.hidden_TD, case.packed, wanted=wanted, options=options)
    assert got.shape == (len(rows), 20)
    assert torch.allclose(got, full[rows], atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [None, WEIGHTS], ids=["kernel", "explicit"])
def test_nothing_passes_between_sequences(kind: str, options: AttentionOptions | None) -> None:
    case = Case(position_embedding_type=kind)
    clean, _ = case.attention(case.hidden_TD, case.packed, options=options)
    poisoned = case.hidden_TD.clone()
    poisoned[13:20] = torch.nan
    got, _ = case.attention(poisoned, case.packed, options=options)
    assert bool(got[13:20].isnan().all())
    rest = [*range(13), *range(20, 30)]
    assert torch.equal(got[rest], clean[rest])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("heads", [4, 5])
def test_torch_multi_head_gives_equal_results(
    grad: bool, training: bool, pairs: bool, weights: bool, heads: int
) -> None:
    sizes: dict[str, Any] = {
        "num_attention_heads": heads,
        "attention_probs_dropout_prob": 0.0,
        "lengths": (7, 7, 7) if pairs else LENGTHS,
    }
    ours, theirs = Case(**sizes), Case(use_torch_multi_head=True, **sizes)
    mask_NLL = torch.rand(3, 7, 7, generator=torch.Generator().manual_seed(2)) < 0.4
    mask_NLL |= torch.eye(7, dtype=torch.bool).roll(2, 0)
    options = AttentionOptions(pair_mask_NLL=mask_NLL if pairs else None, weights=weights)
    answers = []
    for case in (ours, theirs):
        case.attention.train(training).requires_grad_(grad)
        answers.append(case.attention(case.hidden_TD, case.packed, options=options))
    (output, our_weights), (right_output, right_weights) = answers
    assert output.shape == right_output.shape
    assert torch.allclose(output, right_output, atol=1e-9, rtol=0)
    assert len(our_weights) == len(right_weights) == (len(ours.packed.runs) if weights else 0)
    for got, right in zip(our_weights, right_weights, strict=True):
        assert got.shape == right.shape
        assert torch.allclose(got, right, atol=1e-9, rtol=0)
    if grad:
        for answer in (output, right_output):
            answer.square().sum().backward()
        for name, parameter in ours.attention.named_parameters():
            gradient = theirs.attention.get_parameter(name).grad
            assert gradient is not None
            assert parameter.grad is not None
            assert torch.allclose(parameter.grad, gradient, atol=1e-8, rtol=0)


def test_torch_multi_head_refuses_what_it_cannot_do() -> None:
    case = Case(use_torch_multi_head=True)
    with pytest.raises(ValueError, match=r"^head_mask: not with use_torch_multi_head"):
        case.attention(case.hidden_TD, case.packed, options=AttentionOptions(head_mask_H=torch.ones(4)))
    with pytest.raises(ValueError, match=r"^wanted rows: not with use_torch_multi_head"):
        case.attention(case.hidden_TD, case.packed, wanted=WantedRows(rows_R=torch.tensor([0]), counts=[1, 0, 0, 0, 0]))


def test_torch_multi_head_has_no_parameters_of_its_own() -> None:
    names = [name for name, _ in Case(use_torch_multi_head=True).attention.named_parameters()]
    assert names == ["qkv.weight", "qkv.bias", "output.weight", "output.bias"]


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("options", [None, WEIGHTS], ids=["kernel", "explicit"])
def test_dropout_of_probabilities_in_training_alone(reference: bool, options: AttentionOptions | None) -> None:
    lengths = (40,) * 30
    case = Case(attention_probs_dropout_prob=0.25, use_torch_multi_head=reference, lengths=lengths)
    with torch.no_grad():
        case.attention.qkv.weight.zero_()
        case.attention.qkv.bias.fill_(1.0)
        case.attention.output.weight.copy_(torch.eye(20))
        case.attention.output.bias.zero_()
    right, _ = case.attention(case.hidden_TD, case.packed, options=options)
    assert torch.allclose(right, torch.ones_like(right))
    torch.manual_seed(0)
    case.attention.train()
    dropped, weights = case.attention(case.hidden_TD, case.packed, options=options)
    # Each output is a sum of 40 probabilities of 1/40, of which a quarter is dropped and the rest scaled by 4/3.
    assert float(dropped.detach().mean()) == pytest.approx(1.0, abs=0.01)
    assert float(dropped.detach()[:, ::5].std()) == pytest.approx(math.sqrt(0.25 / 0.75 / 40), rel=0.05)
    for probabilities in weights:
        assert float((probabilities == 0).double().mean()) == pytest.approx(0.25, abs=0.01)
        kept = probabilities[probabilities != 0]
        assert torch.allclose(kept, torch.full_like(kept, 4 / 3 / 40))


@pytest.mark.parametrize("rows_of_each", [None, [[0, 5, 12], [], [1, 6], [0], []]])
def test_the_kernel_over_offsets_gets_each_sequences_queries_keys_and_values(
    rows_of_each: list[list[int]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel itself needs a GPU; a plain one in its place shows that it is called as it is documented."""
    case = Case()
    wanted = None
    if rows_of_each is not None:
        first = case.packed.first_rows_N.tolist()
        rows = [first[number] + row for number, own in enumerate(rows_of_each) for row in own]
        wanted = WantedRows(rows_R=torch.tensor(rows), counts=[len(own) for own in rows_of_each])
    right, _ = case.attention(case.hidden_TD, case.packed, wanted=wanted)
    monkeypatch.setattr(varlen, "varlen_attn", plain_varlen_attention)
    monkeypatch.setattr(case.attention, "_takes_varlen", lambda *_args, **_options: True)
    output, weights = case.attention(case.hidden_TD, case.packed, wanted=wanted)
    assert weights == []
    assert torch.allclose(output, right, atol=1e-9, rtol=0)


def plain_varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor, max_q: int, max_k: int
) -> Tensor:
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == int(cu_seq_q.diff().max())
    assert max_k == int(cu_seq_k.diff().max())
    contexts = []
    for number in range(len(cu_seq_k) - 1):
        queries = query[cu_seq_q[number] : cu_seq_q[number + 1]].transpose(0, 1)
        keys, values = (part[cu_seq_k[number] : cu_seq_k[number + 1]].transpose(0, 1) for part in (key, value))
        weights = (queries @ keys.mT / query.shape[2] ** 0.5).softmax(-1)
        contexts.append((weights @ values).transpose(0, 1))
    return torch.cat(contexts)


def test_repr_tells_the_shape() -> None:
    attention = Case(pruned_heads={0: (1,)}, position_embedding_type="relative_key").attention
    assert "heads=3, head_width=5, positions=relative_key" in repr(attention)
