from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from transformers import BertConfig as ReferenceConfig
from transformers import BertForPreTraining as ReferenceModel

from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining
from bert_core.weight_names import (
    DECODER_BIAS,
    DECODER_WEIGHT,
    POSITION_EMBEDDINGS,
    PREDICTION_BIAS,
    WORD_EMBEDDINGS,
    canonical_names,
    canonical_targets,
    decoder_bias_names,
    ignored_names,
    second_copies,
    stored_heads,
)

CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=13,
    type_vocab_size=7,
)
ALL_HEADS = Heads()
HEADS = [Heads(pooler=p, mlm=m, nsp=n) for p, m, n in itertools.product((True, False), repeat=3) if p or not n]
RELATIVE = replace(CONFIG, position_embedding_type="relative_key")
UNTIED = replace(CONFIG, tie_word_embeddings=False)
PRUNED = replace(CONFIG, pruned_heads={1: (0, 2)})
SINUSOIDAL = replace(CONFIG, position_embedding_type="sinusoidal")


def test_names_are_those_that_transformers_writes() -> None:
    reference = ReferenceModel(ReferenceConfig(num_hidden_layers=3, hidden_size=32, num_attention_heads=4))
    written = set(reference.state_dict())
    assert set(canonical_targets(CONFIG, heads=ALL_HEADS)) == written - {DECODER_WEIGHT, DECODER_BIAS}
    assert second_copies(CONFIG, heads=ALL_HEADS) == reference.all_tied_weights_keys


@pytest.mark.parametrize("config", [CONFIG, RELATIVE, UNTIED, PRUNED, SINUSOIDAL])
@pytest.mark.parametrize("heads", HEADS)
def test_every_parameter_is_filled_exactly_once(config: BertConfig, heads: Heads) -> None:
    with torch.device("meta"):
        parameters = dict(BertForPreTraining(config, heads=heads).named_parameters())
    filled = [(t.parameter, t.third) for t in canonical_targets(config, heads=heads).values()]
    wanted = [(name, third) for name in parameters for third in (range(3) if ".qkv." in name else (None,))]
    assert sorted(filled, key=str) == sorted(wanted, key=str)


def test_query_key_and_value_are_thirds_in_this_order() -> None:
    targets = canonical_targets(CONFIG, heads=ALL_HEADS)
    for third, part in enumerate(("query", "key", "value")):
        target = targets[f"bert.encoder.layer.2.attention.self.{part}.bias"]
        assert (target.parameter, target.third) == ("bert.encoder.layers.2.attention.qkv.bias", third)


def test_an_untied_decoder_has_places_of_its_own() -> None:
    tied, untied = (canonical_targets(config, heads=ALL_HEADS) for config in (CONFIG, UNTIED))
    assert tied.keys() - untied.keys() == {PREDICTION_BIAS}
    assert untied.keys() - tied.keys() == {DECODER_WEIGHT, DECODER_BIAS}
    assert untied[DECODER_WEIGHT].parameter == "mlm.decoder.weight"
    assert untied[DECODER_BIAS] == tied[PREDICTION_BIAS]
    assert decoder_bias_names(CONFIG) == (PREDICTION_BIAS, DECODER_BIAS)
    assert decoder_bias_names(UNTIED) == (DECODER_BIAS, PREDICTION_BIAS)
    assert second_copies(UNTIED, heads=ALL_HEADS) == second_copies(CONFIG, heads=Heads(mlm=False)) == {}


def test_only_named_buffers_are_ignored() -> None:
    buffers = {"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"}
    assert ignored_names(CONFIG, heads=ALL_HEADS) == buffers
    assert ignored_names(SINUSOIDAL, heads=ALL_HEADS) == buffers
    assert ignored_names(UNTIED, heads=ALL_HEADS) == {*buffers, PREDICTION_BIAS}
    assert ignored_names(RELATIVE, heads=ALL_HEADS) == {*buffers, POSITION_EMBEDDINGS}
    without_mlm = ignored_names(CONFIG, heads=Heads(mlm=False))
    assert DECODER_WEIGHT in without_mlm
    assert "cls.predictions.transform.LayerNorm.bias" in without_mlm


@pytest.mark.parametrize("heads", HEADS)
def test_stored_heads_are_read_from_the_names(heads: Heads) -> None:
    assert stored_heads(canonical_targets(CONFIG, heads=heads)) == heads


@pytest.mark.parametrize(
    ("names", "heads"),
    [
        ([DECODER_BIAS], Heads(pooler=False, nsp=False)),
        ([DECODER_WEIGHT, "cls.predictions.transform.dense.weight"], Heads(pooler=False, mlm=False, nsp=False)),
        (["cls.seq_relationship.bias"], Heads(mlm=False)),
        (["bert.pooler.dense.bias"], Heads(mlm=False, nsp=False)),
        (["bert.pooler.dense_act.weight"], Heads(pooler=False, mlm=False, nsp=False)),
    ],
)
def test_a_piece_of_a_head_counts_as_the_head(names: list[str], heads: Heads) -> None:
    assert stored_heads(names) == heads


@pytest.mark.parametrize("prefix", ["", "bert.", "module.bert.", "model.bert.", "module.", "module.model.bert."])
def test_prefixes_are_translated(prefix: str) -> None:
    names = [f"{prefix}embeddings.LayerNorm.weight", f"{prefix}encoder.layer.0.output.dense.bias"]
    canonical = canonical_names(names)
    assert canonical.problems == []
    assert canonical.spelling == {
        "bert.embeddings.LayerNorm.weight": names[0],
        "bert.encoder.layer.0.output.dense.bias": names[1],
    }


def test_a_wrapper_that_not_all_names_carry_stays() -> None:
    names = ["module.bert.embeddings.LayerNorm.weight", "bert.embeddings.LayerNorm.bias"]
    assert canonical_names(names).spelling == {name: name for name in names}


@pytest.mark.parametrize("prefixed", ["bert.pooler.dense.bias", "cls.predictions.bias"])
def test_bare_and_prefixed_names_in_one_file_are_a_problem(prefixed: str) -> None:
    (problem,) = canonical_names(["embeddings.LayerNorm.weight", prefixed]).problems
    assert prefixed in problem
    assert "embeddings.LayerNorm.weight" in problem


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        ("encoder.layer.11.output.LayerNorm.beta", "bert.encoder.layer.11.output.LayerNorm.bias"),
        ("cls.predictions.transform.LayerNorm.gamma", "cls.predictions.transform.LayerNorm.weight"),
        ("bert.betamax.gamma_ray", "bert.betamax.gamma_ray"),
        ("bert.pooler.dense.gamma", "bert.pooler.dense.gamma"),
        ("bert.embeddings.MyLayerNorm.gamma", "bert.embeddings.MyLayerNorm.gamma"),
        ("bert.LayerNorm.gamma.weight", "bert.LayerNorm.gamma.weight"),
        ("bert.encoder.layer.0.intermediate.dense_act.bias", "bert.encoder.layer.0.intermediate.dense_act.bias"),
    ],
)
def test_gamma_and_beta_are_translated_only_at_the_end_of_a_layer_norm(name: str, canonical: str) -> None:
    assert canonical_names([name]).spelling == {canonical: name}


def test_one_tensor_under_two_names_is_a_problem() -> None:
    (problem,) = canonical_names(
        [WORD_EMBEDDINGS, "bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"]
    ).problems
    assert problem == "one tensor under two names: bert.embeddings.LayerNorm.gamma and bert.embeddings.LayerNorm.weight"


def test_problems_of_names_are_short_and_counted() -> None:
    long = "x" * 10_000
    names = [f"bert.{number}{long}.LayerNorm.{end}" for number in range(7) for end in ("gamma", "weight")]
    found = canonical_names([*names, f"encoder.{long}", f"cls.{long}"]).problems
    assert found[0].startswith("two kinds of names in one checkpoint")
    assert len(found) == 7
    assert found[-1] == "2 more of that kind"
    assert max(map(len, found)) < 600


def test_no_names_at_all() -> None:
    assert canonical_names([]).spelling == {}
    assert stored_heads([]) == Heads(pooler=False, mlm=False, nsp=False)
