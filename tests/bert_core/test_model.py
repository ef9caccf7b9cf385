from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.activations import ACTIVATIONS
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining, BertModel, PreTrainingOutput
from bert_core.packing import WantedRows
from tests.bert_core.oracle import Answer, Oracle, gap
from tests.bert_core.parity import gradient_gaps, kept_gap, reference_of
from tests.tiny import (
    COLUMNS,
    ROWS,
    TINY_CONFIG,
    masks,
    random_ids,
    random_packed,
    random_segments,
    tiny_config,
    tiny_model,
)

STATE_BOUND, LOGIT_BOUND = 1e-5, 1e-4
WIDTHS: dict[str, dict[str, int]] = {
    "20 wide, 4 heads": {},
    "32 wide, 2 heads": {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 13, "num_hidden_layers": 2},
    "21 wide, 7 heads": {"hidden_size": 21, "num_attention_heads": 7, "intermediate_size": 64, "num_hidden_layers": 1},
}
KINDS = ("absolute", "sinusoidal", "relative_key", "relative_key_query")
VARIANTS: dict[str, dict[str, Any]] = {
    **{kind: {"position_embedding_type": kind} for kind in KINDS},
    "odd sinusoidal": {
        "position_embedding_type": "sinusoidal",
        "hidden_size": 21,
        "num_attention_heads": 3,
    },
    "pre-norm": {"norm_placement": "pre"},
    "pre-norm, relative": {"norm_placement": "pre", "position_embedding_type": "relative_key"},
    "average": {"pooler_type": "all_token_average"},
    "average, pre-norm": {"pooler_type": "all_token_average", "norm_placement": "pre"},
    "no layers": {"num_hidden_layers": 0},
    "one segment": {"type_vocab_size": 1},
    "chunks": {"chunk_size_feed_forward": 5},
    "no activation": {"hidden_act": None},
    "torch multi head": {"use_torch_multi_head": True},
}


def mask_of(kind: str) -> Tensor:
    mask = masks()[kind]
    return torch.ones(ROWS, COLUMNS, dtype=torch.long) if mask is None else mask


# Parity with transformers


@pytest.mark.parametrize("act", list(ACTIVATIONS))
@pytest.mark.parametrize("width", list(WIDTHS))
@pytest.mark.parametrize("pooler", [True, False])
def test_parity_with_transformers(act: str, width: str, pooler: bool) -> None:
    config = tiny_config(hidden_act=act, **WIDTHS[width])
    model = tiny_model(config, heads=Heads(pooler=pooler, nsp=pooler))
    reference = reference_of(model)
    for kind, mask in masks().items():
        for segments in (None, random_segments()):
            asked: dict[str, Any] = {"attention_mask": mask, "token_type_ids": segments}
            asked |= {"output_hidden_states": True, "output_attentions": True}
            with torch.no_grad():
                ours, theirs = model(random_ids(), **asked), reference(random_ids(), **asked)
            check_parity(ours, theirs, mask=mask, has_column_0=kind != "left", pooler=pooler)


def check_parity(
    ours: PreTrainingOutput, theirs: Any, *, mask: Tensor | None, has_column_0: bool, pooler: bool
) -> None:
    assert ours.prediction_logits is not None
    assert ours.hidden_states is not None
    assert ours.attentions is not None
    logits = theirs.prediction_logits if pooler else theirs.logits
    assert kept_gap(ours.prediction_logits, logits, mask) < LOGIT_BOUND
    for our_state, their_state in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        assert kept_gap(our_state, their_state, mask) < STATE_BOUND
    for our_weights, their_weights in zip(ours.attentions, theirs.attentions, strict=True):
        assert kept_gap(our_weights.transpose(1, 2), their_weights.transpose(1, 2), mask) < STATE_BOUND
    if not pooler:
        assert ours.seq_relationship_logits is None
        return
    assert ours.seq_relationship_logits is not None
    # Where column 0 is masked, transformers pools that column all the same, and we pool the first kept token.
    rows = slice(None) if has_column_0 or mask is None else mask[:, 0].bool()
    gaps = ours.seq_relationship_logits[rows] - theirs.seq_relationship_logits[rows]
    assert float(gaps.abs().max()) < LOGIT_BOUND


@pytest.mark.parametrize("pooler", [True, False])
def test_parity_of_the_bare_model(pooler: bool) -> None:
    whole = tiny_model(heads=Heads(pooler=pooler, nsp=pooler))
    reference: Any = reference_of(whole)
    mask = masks()["right"]
    assert mask is not None
    with torch.no_grad():
        ours = whole.bert(random_ids(), attention_mask=mask, token_type_ids=random_segments())
        theirs = reference.bert(random_ids(), attention_mask=mask, token_type_ids=random_segments())
    assert kept_gap(ours.last_hidden_state, theirs.last_hidden_state, mask) < STATE_BOUND
    assert ours.hidden_states is None
    assert ours.attentions is None
    if pooler:
        assert ours.pooler_output is not None
        assert kept_gap(ours.pooler_output, theirs.pooler_output, None) < STATE_BOUND
    else:
        assert ours.pooler_output is theirs.pooler_output is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"position_ids": torch.arange(40, 40 - COLUMNS, -1)[None]},
        {"inputs_embeds": torch.randn(ROWS, COLUMNS, 20, generator=torch.Generator().manual_seed(9))},
    ],
    ids=["positions", "embeddings"],
)
@pytest.mark.parametrize("kind", ["right", "holes"])
def test_parity_of_given_positions_and_embeddings(arguments: dict[str, Tensor], kind: str) -> None:
    model = tiny_model()
    asked = {"attention_mask": masks()[kind], "token_type_ids": random_segments(), **arguments}
    if "inputs_embeds" not in arguments:
        asked["input_ids"] = random_ids()
    with torch.no_grad():
        ours, theirs = model(**asked), reference_of(model)(**asked)
    assert kept_gap(ours.prediction_logits, theirs.prediction_logits, masks()[kind]) < LOGIT_BOUND
    assert kept_gap(ours.seq_relationship_logits, theirs.seq_relationship_logits, None) < LOGIT_BOUND


def random_labels(mask: Tensor) -> Tensor:
    """A third of the kept tokens have a label, the others are ignored."""
    labels = random_ids(seed=4)
    chosen = torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(6)) < 0.3
    return labels.masked_fill(~(chosen & mask.bool()), -100)


@pytest.mark.parametrize("kind", ["none", "right", "holes"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_parity_of_losses_and_gradients(kind: str, tied: bool, act: str) -> None:
    model = tiny_model(tiny_config(tie_word_embeddings=tied, hidden_act=act))
    reference = reference_of(model)
    asked = {
        "attention_mask": masks()[kind],
        "token_type_ids": random_segments(),
        "labels": random_labels(mask_of(kind)),
        "next_sentence_label": torch.tensor([0, 1, 1, 0, 0, 0]),
    }
    ours, theirs = model(random_ids(), **asked), reference(random_ids(), **asked)
    assert ours.loss is not None
    assert float(ours.loss.detach()) == pytest.approx(float(theirs.loss.detach()), abs=1e-5)
    ours.loss.backward()
    theirs.loss.backward()
    gaps = gradient_gaps(model, reference)
    largest = max(float(parameter.grad.abs().max()) for parameter in model.parameters() if parameter.grad is not None)
    assert len(gaps) == 62 + (not tied)
    assert max(gaps.values()) < 1e-5 * max(largest, 1.0), gaps


# Against the oracle: what transformers lacks


def oracle_answers(
    model: BertForPreTraining, mask: Tensor, *, ids: Tensor | None = None, **of_row: Tensor | None
) -> Iterator[tuple[int, Tensor, Answer]]:
    """For each row, which columns are kept and what is right there."""
    oracle = Oracle(model, model.config)
    for row in range(ROWS):
        kept = mask[row].bool()
        given = {name: None if values is None else values[row][kept] for name, values in of_row.items()}
        yield row, kept, oracle(None if ids is None else ids[row][kept], **given)


def check_against_oracle(
    output: PreTrainingOutput, answers: Iterator[tuple[int, Tensor, Answer]], bound: float
) -> None:
    assert output.prediction_logits is not None
    assert output.seq_relationship_logits is not None
    assert output.hidden_states is not None
    assert output.attentions is not None
    for row, kept, right in answers:
        assert gap(output.prediction_logits[row, kept], right.prediction_logits) < bound
        assert gap(output.seq_relationship_logits[row], right.relationship_logits) < bound
        assert not output.prediction_logits[row, ~kept].any()
        for state, right_state in zip(output.hidden_states, right.hidden_states, strict=True):
            assert gap(state[row, kept], right_state) < bound
            assert not state[row, ~kept].any()
        for weights, right_weights in zip(output.attentions, right.attentions, strict=True):
            assert gap(weights[row][:, kept][:, :, kept], right_weights) < bound
            assert not weights[row][:, ~kept].any()
            assert not weights[row][:, :, ~kept].any()


EVERYTHING = {"output_hidden_states": True, "output_attentions": True}


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("kind", ["left", "holes"])
def test_every_variant_is_the_formula(variant: str, kind: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    mask = mask_of(kind)
    segments = random_segments(config)
    positions = torch.arange(COLUMNS).expand(ROWS, COLUMNS)
    model = tiny_model(config, dtype=torch.float64)
    answers = list(oracle_answers(model, mask, ids=random_ids(), segments=segments, positions=positions))
    for dtype, bound in ((torch.float64, 1e-9), (torch.float32, LOGIT_BOUND)):
        model = tiny_model(config).to(dtype)
        if dtype == torch.float64:
            model = tiny_model(config, dtype=dtype)
        output = model(random_ids(), attention_mask=mask, token_type_ids=segments, **EVERYTHING)
        check_against_oracle(output, iter(answers), bound)
        last = output.hidden_states[-1]
        for row, kept, right in answers:
            assert gap(last[row, kept], right.last) < (bound if dtype == torch.float64 else STATE_BOUND * 3)


@pytest.mark.parametrize("kind", KINDS)
def test_positions_embeddings_and_head_masks_are_the_formula(kind: str) -> None:
    config = tiny_config(position_embedding_type=kind)
    model = tiny_model(config, dtype=torch.float64)
    mask = mask_of("holes")
    generator = torch.Generator().manual_seed(7)
    positions = torch.randint(41, (ROWS, COLUMNS), generator=generator)
    embeds = torch.randn(ROWS, COLUMNS, 20, generator=generator, dtype=torch.float64)
    factors = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    output = model(inputs_embeds=embeds, attention_mask=mask, position_ids=positions, head_mask=factors, **EVERYTHING)
    oracle = Oracle(model, config)
    answers = (
        (row, kept, oracle(embeds=embeds[row, kept], positions=positions[row, kept], head_factors=factors))
        for row, kept in ((row, mask[row].bool()) for row in range(ROWS))
    )
    check_against_oracle(output, answers, 1e-9)


def test_one_head_mask_serves_all_layers() -> None:
    model = tiny_model()
    factors = torch.tensor([0.0, 0.5, 1.0, 2.0])
    each = model.bert(random_ids(), head_mask=factors.expand(3, 4)).last_hidden_state
    assert torch.equal(model.bert(random_ids(), head_mask=factors).last_hidden_state, each)
    assert not torch.equal(model.bert(random_ids()).last_hidden_state, each)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("reference", [False, True])
def test_pair_masks_are_the_formula(kind: str, placement: str, reference: bool) -> None:
    if reference and kind.startswith("relative"):
        kind = "sinusoidal"
    config = tiny_config(position_embedding_type=kind, norm_placement=placement, use_torch_multi_head=reference)
    model = tiny_model(config, dtype=torch.float64)
    mask = torch.rand(ROWS, COLUMNS, COLUMNS, generator=torch.Generator().manual_seed(2)) < 0.3
    mask |= torch.eye(COLUMNS, dtype=torch.bool).roll(3, 0)
    output = model(random_ids(), attention_mask=mask, token_type_ids=random_segments(), **EVERYTHING)
    everything = torch.ones(ROWS, COLUMNS)
    answers = oracle_answers(model, everything, ids=random_ids(), segments=random_segments(), visible=mask)
    check_against_oracle(output, answers, 1e-9)
    assert output.attentions is not None
    for weights in output.attentions:
        assert not weights[~mask[:, None].expand_as(weights)].any()


def test_a_causal_pair_mask_lets_nothing_from_the_future_through() -> None:
    model = tiny_model()
    causal = torch.ones(COLUMNS, COLUMNS).tril().expand(ROWS, -1, -1)
    ids, other = random_ids(), random_ids()
    other[:, 8:] = random_ids(seed=1)[:, 8:]
    before, after = (model.bert(given, attention_mask=causal).last_hidden_state for given in (ids, other))
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:], atol=0.01)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("offset", [0, 5, 28])
def test_a_position_offset_is_a_shift_of_the_positions(kind: str, offset: int) -> None:
    model = tiny_model(tiny_config(position_embedding_type=kind))
    shifted = model.bert(random_ids(), position_offset=offset).last_hidden_state
    given = model.bert(random_ids(), position_ids=torch.arange(offset, offset + COLUMNS)).last_hidden_state
    assert torch.equal(shifted, given)
    plain = model.bert(random_ids()).last_hidden_state
    assert torch.equal(plain, shifted) == (offset == 0 or kind.startswith("relative"))


# Masks, padding and neighbours


def test_padding_ids_without_a_mask_change_no_real_token() -> None:
    model = tiny_model()
    ids = random_ids(shape=(1, 11))
    padded = F.pad(ids, (0, 2))
    mask = torch.ones(1, 13).index_fill(1, torch.tensor([11, 12]), 0)
    alone = model(ids)
    for output in (model(padded), model(padded, attention_mask=mask)):
        assert kept_gap(output.prediction_logits[:, :11], alone.prediction_logits, None) < LOGIT_BOUND
        assert kept_gap(output.seq_relationship_logits, alone.seq_relationship_logits, None) < LOGIT_BOUND
        assert not output.prediction_logits[:, 11:].any()
    as_text = model(padded, attention_mask=torch.ones(1, 13))
    assert kept_gap(as_text.prediction_logits[:, :11], alone.prediction_logits, None) > 0.01


def test_padding_of_another_id_needs_no_mask_either() -> None:
    model = tiny_model(tiny_config(pad_token_id=7))
    ids = random_ids(shape=(1, 11)).masked_fill(random_ids(shape=(1, 11)) == 7, 8)
    padded = model.bert(F.pad(ids, (0, 2), value=7))
    assert kept_gap(padded.last_hidden_state[:, :11], model.bert(ids).last_hidden_state, None) < STATE_BOUND


@pytest.mark.parametrize("kind", ["right", "left", "holes"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_neighbours_do_not_matter(kind: str, variant: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    model = tiny_model(config)
    mask, segments = mask_of(kind), random_segments(config)
    batch = model.bert(random_ids(), attention_mask=mask, token_type_ids=segments)
    for row in range(ROWS):
        one = slice(row, row + 1)
        alone = model.bert(random_ids()[one], attention_mask=mask[one], token_type_ids=segments[one])
        assert kept_gap(batch.last_hidden_state[one], alone.last_hidden_state, None) < STATE_BOUND
        assert kept_gap(batch.pooler_output[one], alone.pooler_output, None) < STATE_BOUND


@pytest.mark.parametrize("place", [0, 31])
def test_the_place_in_the_batch_does_not_matter(place: int) -> None:
    model = tiny_model()
    ids, others = random_ids(shape=(1, 5)), random_ids(seed=3, shape=(32, 41))
    mask = torch.ones(32, 41)
    others[place, :5], mask[place, 5:] = ids[0], 0
    batch = model.bert(others, attention_mask=mask)
    alone = model.bert(ids)
    assert kept_gap(batch.last_hidden_state[place : place + 1, :5], alone.last_hidden_state, None) < STATE_BOUND
    cosine = F.cosine_similarity(batch.pooler_output[place], alone.pooler_output[0], dim=0)
    assert float(cosine.detach()) >= 0.999999


@pytest.mark.parametrize("kind", ["right", "left", "holes"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_nan_in_a_masked_token_reaches_nothing(kind: str, variant: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    model = tiny_model(config)
    mask = mask_of(kind)
    embeds = torch.randn(ROWS, COLUMNS, config.hidden_size, generator=torch.Generator().manual_seed(9))
    poisoned = embeds.masked_fill(mask[..., None] == 0, torch.nan)
    right, got = (model(inputs_embeds=given, attention_mask=mask, **EVERYTHING) for given in (embeds, poisoned))
    for name in ("prediction_logits", "seq_relationship_logits"):
        assert torch.equal(getattr(got, name), getattr(right, name))
    for ours, theirs in zip(got.hidden_states + got.attentions, right.hidden_states + right.attentions, strict=True):
        assert torch.equal(ours, theirs)


def test_a_row_with_nothing_to_attend_to_is_refused() -> None:
    ids, mask = torch.tensor([[2, 75, 3], [0, 0, 0]]), torch.tensor([[1, 1, 1], [0, 0, 0]])
    with pytest.raises(ValueError, match="^attention_mask: every row must keep"):
        tiny_model()(ids, attention_mask=mask)
    with pytest.raises(ValueError, match="^input_ids: a row holds only padding"):
        tiny_model()(ids)
    assert bool(tiny_model()(ids, attention_mask=torch.ones(2, 3)).prediction_logits.isfinite().all())


@pytest.mark.parametrize("training", [False, True])
def test_the_output_is_as_long_as_the_batch_even_if_no_row_is(training: bool) -> None:
    mask = torch.zeros(ROWS, COLUMNS)
    mask[:, :4] = mask[2, :6] = 1
    for reference in (False, True):
        config = tiny_config(use_torch_multi_head=reference, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        with torch.no_grad():
            output = tiny_model(config).train(training)(random_ids(), attention_mask=mask, **EVERYTHING)
        assert output.prediction_logits.shape == (ROWS, COLUMNS, 99)
        assert output.hidden_states[-1].shape == (ROWS, COLUMNS, 20)
        assert output.attentions[-1].shape == (ROWS, 4, COLUMNS, COLUMNS)
        right = reference_of(tiny_model())(random_ids(), attention_mask=mask)
        assert kept_gap(output.prediction_logits, right.prediction_logits, mask) < LOGIT_BOUND


# Segments and the sentence pair


def test_segments_matter_and_zeros_are_the_default() -> None:
    model = tiny_model()
    pair = (torch.arange(COLUMNS) > 5).long().expand(ROWS, COLUMNS)
    true, zeros, default = (
        model(random_ids(), **given).seq_relationship_logits
        for given in ({"token_type_ids": pair}, {"token_type_ids": pair * 0}, {})
    )
    assert torch.equal(zeros, default)
    assert kept_gap(true, zeros, None) > 0.01
    right = reference_of(model)(random_ids(), token_type_ids=pair).seq_relationship_logits
    assert kept_gap(true, right, None) < LOGIT_BOUND


def test_everything_after_the_ids_is_by_keyword() -> None:
    model: Any = tiny_model()
    for module in (model, model.bert):
        with pytest.raises(TypeError, match="positional"):
            module(random_ids(), random_segments())


# Losses


def loss_of(model: BertForPreTraining, **labels: Any) -> float:
    output = model(random_ids(), **labels)
    assert output.loss is not None
    return float(output.loss.detach())


def test_losses_are_the_means_of_what_has_a_label() -> None:
    model = tiny_model(dtype=torch.float64)
    labels = random_labels(mask_of("none"))
    next_labels = torch.tensor([0, 1, 1, 0, 0, 0])
    output = model(random_ids(), labels=labels, next_sentence_label=next_labels)
    predictions = [
        -float(output.prediction_logits[row, column].detach().log_softmax(0)[labels[row, column]])
        for row, column in (labels != -100).nonzero().tolist()
    ]
    order = [
        -math.log(float(F.softmax(logits.detach(), 0)[label]))
        for logits, label in zip(output.seq_relationship_logits, next_labels, strict=True)
    ]
    of_predictions, of_order = sum(predictions) / len(predictions), sum(order) / len(order)
    assert loss_of(model, labels=labels) == pytest.approx(of_predictions, abs=1e-12)
    assert loss_of(model, next_sentence_label=next_labels) == pytest.approx(of_order, abs=1e-12)
    assert float(output.loss.detach()) == pytest.approx(of_predictions + of_order, abs=1e-12)
    assert model(random_ids()).loss is None


def test_label_0_is_next() -> None:
    model = tiny_model()
    assert model.nsp is not None
    with torch.no_grad():
        model.nsp.classifier.weight.zero_()
        model.nsp.classifier.bias.copy_(torch.tensor([5.2880, -6.0952]))
    assert loss_of(model, next_sentence_label=torch.zeros(ROWS, dtype=torch.long)) == pytest.approx(1.14e-5, abs=1e-7)
    assert loss_of(model, next_sentence_label=torch.ones(ROWS, dtype=torch.long)) == pytest.approx(11.3832, abs=1e-4)


@pytest.mark.parametrize(
    ("logits", "is_next"),
    [
        ((5.2880, -6.0952), 0.9999886),
        ((3.5181, -2.2946), 0.9970196),
        ((-0.0728, 0.1863), 0.4355850),
        ((0.3190, -0.1528), 0.6158097),
    ],
)
def test_the_loss_of_is_next_is_its_negative_log_probability(logits: tuple[float, float], is_next: float) -> None:
    model = tiny_model(dtype=torch.float64)
    assert model.nsp is not None
    with torch.no_grad():
        model.nsp.classifier.weight.zero_()
        model.nsp.classifier.bias.copy_(torch.tensor(logits))
    loss = loss_of(model, next_sentence_label=torch.zeros(ROWS, dtype=torch.long))
    assert math.exp(-loss) == pytest.approx(is_next, abs=5e-8)


def test_where_every_label_is_ignored_the_loss_is_zero_and_so_are_its_gradients() -> None:
    model = tiny_model()
    output = model(random_ids(), labels=torch.full((ROWS, COLUMNS), -100))
    output.loss.backward()
    assert float(output.loss.detach()) == 0.0
    assert all(not parameter.grad.any() for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_labels_may_be_narrower_integers(dtype: torch.dtype) -> None:
    labels, next_labels = random_labels(mask_of("none")), torch.tensor([0, 1, 1, 0, 0, 0])
    model = tiny_model()
    narrow = loss_of(model, labels=labels.to(dtype), next_sentence_label=next_labels.to(dtype))
    assert narrow == loss_of(model, labels=labels, next_sentence_label=next_labels)


LABELS = random_labels(mask_of("right"))
NEXT = torch.zeros(ROWS, dtype=torch.long)
MASKED = {"attention_mask": mask_of("right")}


@pytest.mark.parametrize(
    ("heads", "arguments", "message"),
    [
        ({}, {"labels": LABELS[:, :5]}, r"labels: \[6, 5\] is not \[6, 13\]"),
        ({}, {"labels": LABELS.float()}, "labels: torch.float32 is not an integer type"),
        ({}, {"labels": LABELS.bool()}, "labels: torch.bool is not an integer type"),
        ({}, {"labels": LABELS.masked_fill(LABELS == -100, 99)}, "labels: must be -100 or from 0 to 98"),
        ({}, {"labels": LABELS.masked_fill(LABELS == -100, -1)}, "labels: must be -100 or from 0 to 98"),
        ({}, {"labels": random_ids(), **MASKED}, "labels: a token without logits must have the label -100"),
        (
            {},
            {"labels": random_ids(), "prediction_mask": LABELS != -100},
            "labels: a token without logits must have the label -100",
        ),
        ({"mlm": False}, {"labels": LABELS}, "labels: this model has no MLM head"),
        ({}, {"next_sentence_label": NEXT - 100}, r"next_sentence_label: must be 0 \(is next\) or 1 \(is not\), \[6\]"),
        ({}, {"next_sentence_label": NEXT + 2}, "next_sentence_label: must be 0"),
        ({}, {"next_sentence_label": NEXT[:5]}, "next_sentence_label: must be 0"),
        ({}, {"next_sentence_label": NEXT[:, None]}, "next_sentence_label: must be 0"),
        ({"nsp": False}, {"next_sentence_label": NEXT}, "next_sentence_label: this model has no NSP head"),
        ({}, {"prediction_mask": LABELS}, r"prediction_mask: must be bool \[6, 13\]"),
        ({}, {"prediction_mask": (LABELS != -100)[:5]}, r"prediction_mask: must be bool \[6, 13\]"),
        (
            {},
            {"prediction_mask": torch.ones(ROWS, COLUMNS, dtype=torch.bool), **MASKED},
            "prediction_mask: a token that the attention mask drops has no prediction",
        ),
        ({}, {"head_mask": torch.ones(3)}, r"head_mask: \[3\] is not \[4\] or \[3, 4\]"),
        ({}, {"head_mask": torch.ones(4, 3)}, r"head_mask: \[4, 3\] is not \[4\] or \[3, 4\]"),
        ({}, {"head_mask": [1.0] * 4}, "head_mask: a list is not a torch.Tensor"),
        ({}, {"head_mask": torch.tensor([1, 1, torch.nan, 1])}, "head_mask: values must be real and finite"),
        ({}, {"head_mask": torch.tensor([1, 1, torch.inf, 1])}, "head_mask: values must be real and finite"),
        ({}, {"head_mask": torch.ones(4).to(torch.complex64)}, "head_mask: values must be real and finite"),
        ({}, {"attention_mask": mask_of("right")[:, :5]}, r"attention_mask: \[6, 5\] is not"),
        ({}, {"labels": LABELS.tolist()}, "labels: a list is not a torch.Tensor"),
        ({}, {"labels": LABELS.to(torch.complex64)}, "labels: torch.complex64 is not an integer type"),
        ({}, {"next_sentence_label": NEXT.float()}, "next_sentence_label: torch.float32 is not an integer type"),
        ({}, {"next_sentence_label": [0] * ROWS}, "next_sentence_label: a list is not a torch.Tensor"),
        ({}, {"prediction_mask": (LABELS != -100).tolist()}, "prediction_mask: a list is not a torch.Tensor"),
    ],
)
def test_faults_are_told_by_argument_fault_and_rule(
    heads: dict[str, bool], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        tiny_model(heads=Heads(**heads))(random_ids(), **arguments)


@pytest.mark.parametrize("head", [False, True])
def test_embeddings_that_do_not_fit_into_the_dtype_of_the_model(head: bool) -> None:
    model = tiny_model(dtype=torch.bfloat16)
    module = model if head else model.bert
    with pytest.raises(ValueError, match=r"^inputs_embeds: torch.float32 does not fit .* torch.bfloat16$"):
        module(inputs_embeds=torch.zeros(2, 3, 20))
    assert model.bert.dtype == torch.bfloat16


def test_the_torch_reference_path_refuses_head_masks() -> None:
    model = tiny_model(tiny_config(use_torch_multi_head=True))
    with pytest.raises(ValueError, match="^head_mask: not with use_torch_multi_head"):
        model(random_ids(), head_mask=torch.ones(4))


def test_a_model_can_leave_the_torch_reference_path() -> None:
    model = tiny_model(tiny_config(use_torch_multi_head=True))
    before = model.bert(random_ids()).last_hidden_state
    model.bert.drop_reference_attention()
    assert not model.config.use_torch_multi_head
    assert all(attention.reference is None for attention in model.bert.attentions())
    assert kept_gap(model.bert(random_ids()).last_hidden_state, before, None) < STATE_BOUND
    model.prune_heads({0: [1]})


# The MLM head on given rows, and heads that do not exist


@pytest.mark.parametrize("kind", ["none", "left", "holes"])
def test_predictions_for_given_tokens_are_those_of_the_full_pass(kind: str) -> None:
    model = tiny_model()
    labels = random_labels(mask_of(kind))
    wanted = labels != -100
    asked = {"attention_mask": masks()[kind], "labels": labels}
    full = model(random_ids(), **asked)
    some = model(random_ids(), prediction_mask=wanted, **asked)
    assert kept_gap(some.prediction_logits, full.prediction_logits[wanted], None) < 1e-5
    assert float(some.loss.detach()) == pytest.approx(float(full.loss.detach()), abs=1e-6)
    assert torch.equal(some.seq_relationship_logits, full.seq_relationship_logits)


def test_no_wanted_prediction_gives_no_row() -> None:
    nothing = torch.zeros(ROWS, COLUMNS, dtype=torch.bool)
    assert tiny_model()(random_ids(), prediction_mask=nothing).prediction_logits.shape == (0, 99)


@pytest.mark.parametrize(
    ("heads", "missing"),
    [
        (Heads(), ()),
        (Heads(nsp=False), ("nsp",)),
        (Heads(mlm=False), ("mlm",)),
        (Heads(pooler=False, nsp=False), ("pooler", "nsp")),
        (Heads(pooler=False, mlm=False, nsp=False), ("pooler", "mlm", "nsp")),
    ],
)
def test_a_head_that_is_left_out_does_not_exist(heads: Heads, missing: tuple[str, ...]) -> None:
    model = tiny_model(heads=heads)
    output = model(random_ids())
    assert model.heads.missing == missing
    assert (model.bert.pooler is None, model.mlm is None, model.nsp is None) == tuple(
        name in missing for name in ("pooler", "mlm", "nsp")
    )
    assert (output.prediction_logits is None) == ("mlm" in missing)
    assert (output.seq_relationship_logits is None) == ("nsp" in missing)
    assert (model.bert(random_ids()).pooler_output is None) == ("pooler" in missing)
    prefixes = {"pooler": "bert.pooler.", "mlm": "mlm.", "nsp": "nsp."}
    for name, prefix in prefixes.items():
        assert any(key.startswith(prefix) for key in model.state_dict()) == (name not in missing)


# Precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("weights", [False, True])
def test_half_precision_stays_close_to_float32(dtype: torch.dtype, variant: str, weights: bool) -> None:
    config = tiny_config(**VARIANTS[variant])
    mask, segments = mask_of("holes"), random_segments(config)
    with torch.no_grad():
        right, got = (
            tiny_model(config, seed=1, dtype=kind).bert(
                random_ids(), attention_mask=mask, token_type_ids=segments, output_attentions=weights
            )
            for kind in (torch.float32, dtype)
        )
    assert got.last_hidden_state.dtype == got.pooler_output.dtype == dtype
    cosine = F.cosine_similarity(got.last_hidden_state.float(), right.last_hidden_state, dim=-1)[mask.bool()]
    # Measured over all variants, on weights of deviation 0.3: 1 - 3e-6 for float16, 1 - 4e-4 for bfloat16.
    assert float(cosine.min()) >= (0.99999 if dtype == torch.float16 else 0.999)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_single_and_batch_agree(dtype: torch.dtype) -> None:
    model = tiny_model(dtype=dtype)
    mask = mask_of("right")
    with torch.no_grad():
        batch = model.bert(random_ids(), attention_mask=mask).pooler_output
        for row in range(ROWS):
            one = slice(row, row + 1)
            alone = model.bert(random_ids()[one], attention_mask=mask[one]).pooler_output
            cosine = F.cosine_similarity(batch[row].float(), alone[0].float(), dim=0)
            assert float(cosine) >= 0.999


def test_every_mask_dtype_serves_every_model_dtype() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        model = tiny_model(dtype=dtype)
        right = model.bert(random_ids(), attention_mask=mask_of("holes")).last_hidden_state
        for kind in (torch.bool, torch.int32, torch.float32, torch.bfloat16):
            mask = mask_of("holes").to(kind)
            assert torch.equal(model.bert(random_ids(), attention_mask=mask).last_hidden_state, right)


def test_autocast_trains() -> None:
    model = tiny_model().train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(random_ids(), labels=random_labels(mask_of("none")), next_sentence_label=NEXT).loss
    assert loss.dtype == torch.float32
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in model.parameters())


# Training mode


def test_eval_mode_is_deterministic_and_training_mode_is_not() -> None:
    model = tiny_model(tiny_config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2))
    first, second = (model.bert(random_ids()).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    third, fourth = (model.bert(random_ids()).last_hidden_state for _ in range(2))
    assert not torch.equal(third, fourth)
    assert torch.equal(model.eval().bert(random_ids()).last_hidden_state, first)


@pytest.mark.parametrize("name", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_without_dropout_training_mode_changes_nothing(name: str) -> None:
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = tiny_model(tiny_config(**none))
    right = model.bert(random_ids()).last_hidden_state
    assert torch.equal(model.train().bert(random_ids()).last_hidden_state, right)
    some = tiny_model(tiny_config(**{**none, name: 0.2})).train()
    assert not torch.equal(some.bert(random_ids()).last_hidden_state, right)


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("training", [False, True])
def test_gradients_flow_to_all_parameters(variant: str, training: bool) -> None:
    config = tiny_config(**VARIANTS[variant])
    model = tiny_model(config).train(training)
    model(
        random_ids(),
        token_type_ids=random_segments(config),
        attention_mask=mask_of("holes"),
        labels=random_labels(mask_of("holes")),
        next_sentence_label=NEXT,
    ).loss.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == []
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


# Initialisation, ties, counts


@pytest.mark.parametrize("std", [0.02, 0.5, 0.0])
def test_initialisation(std: float) -> None:
    torch.manual_seed(0)
    config = tiny_config(initializer_range=std, hidden_size=64, intermediate_size=200, vocab_size=1000)
    config = replace(config, position_embedding_type="relative_key", max_position_embeddings=300)
    model = BertForPreTraining(config)
    assert model.training
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            assert float(module.weight.detach().std()) == pytest.approx(std, rel=0.15), name
            assert abs(float(module.weight.detach().mean())) <= 0.2 * std, name
        if isinstance(module, nn.Linear | nn.LayerNorm):
            assert not module.bias.any(), name
        if isinstance(module, nn.LayerNorm):
            assert bool((module.weight == 1).all()), name


@pytest.mark.parametrize("pad", [0, 5, None])
def test_the_padding_row_starts_at_zero(pad: int | None) -> None:
    weight = BertModel(tiny_config(pad_token_id=pad)).embeddings.token.weight
    assert [row for row in range(99) if not weight[row].any()] == ([] if pad is None else [pad])


@pytest.mark.parametrize("tied", [True, False])
def test_the_decoder_shares_the_word_embeddings_where_tied(tied: bool) -> None:
    model = BertForPreTraining(tiny_config(tie_word_embeddings=tied))
    assert model.mlm is not None
    for copied in (model, copy.deepcopy(model), model.double()):
        assert copied.mlm is not None
        assert (copied.mlm.decoder.weight is copied.bert.embeddings.token.weight) == tied
    assert model.mlm.decoder.bias.shape == (99,)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pooler", [True, False])
def test_parameters_are_counted_once(tied: bool, pooler: bool) -> None:
    model = tiny_model(tiny_config(tie_word_embeddings=tied), heads=Heads(pooler=pooler, nsp=pooler))
    embeddings = (99 + 41 + 7) * 20 + 2 * 20
    layer = 4 * (20 * 20 + 20) + (20 * 37 + 37) + (37 * 20 + 20) + 4 * 20
    bare = embeddings + 3 * layer + pooler * (20 * 20 + 20)
    heads = (20 * 20 + 20) + 2 * 20 + 99 + (not tied) * 99 * 20 + pooler * (2 * 20 + 2)
    assert model.bert.num_parameters() == bare
    assert model.num_parameters() == bare + heads
    # Beside an untied decoder, transformers keeps a second bias of 99 that it does not use.
    reference: Any = reference_of(model)
    assert reference.num_parameters() == bare + heads + (not tied) * 99


def test_repr_is_one_readable_line() -> None:
    model = tiny_model(heads=Heads(nsp=False), dtype=torch.bfloat16)
    count = f"{model.num_parameters():,}"
    assert repr(model) == (
        f"BertForPreTraining(3 layers, 20 wide, 4 attention heads, {count} parameters, heads: pooler mlm, "
        "bfloat16 on cpu)"
    )
    bare = BertModel(TINY_CONFIG, add_pooling_layer=False)
    assert repr(bare).startswith("BertModel(3 layers, 20 wide, ")
    assert repr(bare).endswith("heads: none, float32 on cpu)")
    assert "heads: pooler," in repr(BertModel(TINY_CONFIG))


# The meta device


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_a_model_is_made_on_the_meta_device_and_filled_later(variant: str) -> None:
    config = tiny_config(**VARIANTS[variant])
    with torch.device("meta"):
        made = BertForPreTraining(config)
    assert all(parameter.is_meta for parameter in made.parameters())
    filled = tiny_model(config)
    made.load_state_dict(filled.state_dict(), assign=True)
    made.tie_weights()
    made.reset_buffers(device=torch.device("cpu"), dtype=torch.float32)
    assert made.num_parameters() == filled.num_parameters()
    got, right = (model.eval()(random_ids()) for model in (made, filled))
    assert torch.equal(got.prediction_logits, right.prediction_logits)


# Prepacked weights


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_prepacked_model_gives_the_same_answers(variant: str, dtype: torch.dtype) -> None:
    config = tiny_config(**VARIANTS[variant])
    model = tiny_model(config, dtype=dtype)
    packed = random_packed(config, lengths=(7, 7, 1, 12))
    wanted = WantedRows(torch.tensor([0, 7, 8, 14, 20]), (1, 2, 1, 1))
    ids = random_ids(config)
    with torch.no_grad():
        rows_TD, logits = model.bert.encode(packed), model(ids).prediction_logits
        model.bert.drop_reference_attention()
        model.prepack()
        again_TD, some_RD = model.bert.encode(packed), model.bert.encode(packed, wanted=wanted)
        logits_again = model(ids).prediction_logits
    for found, right in ((again_TD, rows_TD), (some_RD, rows_TD[wanted.rows_R]), (logits_again, logits)):
        if dtype == torch.float32:
            assert torch.allclose(found, right, rtol=1e-5, atol=1e-5)
        else:
            cosine = F.cosine_similarity(found.float(), right.float(), dim=-1)
            assert cosine[right.abs().sum(-1) > 0].min() >= 0.9995


def test_a_prepacked_layer_that_answers_for_some_rows_holds_its_projection_in_two_parts() -> None:
    model = tiny_model()
    model.prepack()
    *others, last = model.bert.attentions()
    assert all(attention.query is None for attention in others)
    assert last.query is not None
    assert last.query.out_features == 20
    assert last.key_value is not None
    assert last.key_value.out_features == 40
