"""The packed objective is that of the padded model, and its gradients too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining
from bert_core.packing import unpack
from bert_core.pretraining.batches import Collator, TrainingBatch
from bert_core.pretraining.evaluation import evaluate
from bert_core.pretraining.objective import Objective, sentence_embeddings
from bert_core.tokenizer import BertTokenizer
from tests.bert_core.pretraining.test_batches import instance
from tests.tiny import tiny_config, tiny_model


def batch_for(tokenizer: BertTokenizer, config: BertConfig, *, seed: int = 0) -> TrainingBatch:
    collate = Collator(tokenizer, config=config, whole_words=False)
    instances = [instance(9, 14), instance(9, 14, is_random=True), instance(3, 2, is_random=True), instance(1, 1)]
    return collate(instances, random=np.random.default_rng(seed))


def padded(batch: TrainingBatch) -> dict[str, Tensor]:
    """The arguments of the padded model that say the same."""
    lengths = batch.masked.lengths
    shape = len(lengths), max(lengths)
    places_T = torch.cat([row * shape[1] + torch.arange(length) for row, length in enumerate(lengths)])
    labels_T = torch.full((batch.tokens,), -100).index_copy(0, batch.places_M, batch.labels_M)
    ones_T = torch.ones(batch.tokens, dtype=torch.int64)
    mask = unpack(ones_T, places_T=places_T, shape=shape)
    assert batch.masked.ids_T is not None
    return {
        "input_ids": unpack(batch.masked.ids_T, places_T=places_T, shape=shape),
        "attention_mask": mask,
        "token_type_ids": unpack(batch.masked.segments_T, places_T=places_T, shape=shape),
        "labels": unpack(labels_T, places_T=places_T, shape=shape).masked_fill(mask == 0, -100),
        "next_sentence_label": batch.next_N,
    }


@pytest.mark.parametrize("pooler_type", ["first_token_transform", "all_token_average"])
@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_losses_and_gradients_are_those_of_the_padded_model(
    tokenizer: BertTokenizer, pooler_type: str, norm_placement: str
) -> None:
    config = tiny_config(pooler_type=pooler_type, norm_placement=norm_placement, pair_segment_ids=(1, 2))
    config = replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    batch = batch_for(tokenizer, config)
    gradients = []
    for way in ("packed", "padded"):
        model = tiny_model(config, dtype=torch.float64).train()
        if way == "packed":
            sums = Objective(model)(batch)
            loss = sums.prediction_loss.double() / len(batch.labels_M) + sums.next_loss.double() / batch.sequences
        else:
            loss = model(**padded(batch)).loss
        loss.backward()
        gradients.append((loss.item(), [parameter.grad for parameter in model.parameters()]))
    (packed_loss, packed_gradients), (padded_loss, padded_gradients) = gradients
    assert packed_loss == pytest.approx(padded_loss, rel=1e-5)
    for ours, theirs in zip(packed_gradients, padded_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_correct_answers_are_counted(tokenizer: BertTokenizer) -> None:
    config = tiny_config()
    batch, model = batch_for(tokenizer, config), tiny_model(config)
    output = model(**{name: value for name, value in padded(batch).items() if "label" not in name})
    labels = padded(batch)["labels"]
    predicted = output.prediction_logits.argmax(-1)
    sums = Objective(model)(batch)
    assert sums.correct_predictions.item() == (predicted == labels).sum().item()
    assert sums.correct_next.item() == (output.seq_relationship_logits.argmax(1) == batch.next_N).sum().item()


def test_embeddings_that_are_kept_cost_nothing_and_others_do(tokenizer: BertTokenizer) -> None:
    config = tiny_config()
    batch, model = batch_for(tokenizer, config), tiny_model(config)
    clean_ND = sentence_embeddings(model.bert, batch)
    assert clean_ND.shape == (4, config.hidden_size)
    assert not clean_ND.requires_grad
    unmasked = replace(batch, masked=batch.clean)
    same = Objective(model)(unmasked, clean_ND).embedding_loss
    assert same.item() == pytest.approx(0, abs=1e-5)
    opposite = Objective(model)(unmasked, -clean_ND).embedding_loss
    assert opposite.item() == pytest.approx(2 * 4, abs=1e-4)
    other = Objective(model)(batch, clean_ND).embedding_loss
    assert 0 < other.item() < 8


@pytest.mark.parametrize("heads", [Heads(mlm=False), Heads(nsp=False), Heads(pooler=False, nsp=False)])
def test_a_missing_head_has_no_figures(tokenizer: BertTokenizer, heads: Heads) -> None:
    config = tiny_config()
    model: BertForPreTraining = tiny_model(config, heads=heads).train()
    found = evaluate(model, [batch_for(tokenizer, config), batch_for(tokenizer, config, seed=1)])
    assert (found.pairs, found.masked) == (8, 2 * len(batch_for(tokenizer, config).labels_M))
    assert (found.mlm_accuracy is None) == (found.mlm_loss is None) == (found.mlm_perplexity is None) == (not heads.mlm)
    assert (found.nsp_accuracy is None) == (found.nsp_loss is None) == (not heads.nsp)
    assert model.training


def test_figures_of_an_evaluation_are_means_over_all_batches(tokenizer: BertTokenizer) -> None:
    config = tiny_config()
    model = tiny_model(config)
    batches = [batch_for(tokenizer, config, seed=seed) for seed in range(3)]
    found = evaluate(model, batches)
    outputs = [model(**padded(batch)) for batch in batches]
    losses = [
        torch.nn.functional.cross_entropy(
            output.prediction_logits.flatten(0, 1), padded(batch)["labels"].flatten(), reduction="sum"
        )
        for output, batch in zip(outputs, batches, strict=True)
    ]
    assert found.mlm_loss == pytest.approx(torch.stack(losses).sum().item() / found.masked, rel=1e-5)
    assert found.mlm_loss is not None
    assert found.mlm_perplexity == pytest.approx(np.exp(found.mlm_loss), rel=1e-9)
    with pytest.raises(ValueError, match="no text"):
        evaluate(model, [])
