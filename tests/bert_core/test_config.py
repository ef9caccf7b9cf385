from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig as ReferenceConfig

from bert_core.config import FIELD_NAMES, BertConfig
from tests.tiny import TINY_CONFIG, tiny_config

NAN, INFINITY = float("nan"), float("inf")

BAD_VALUES: list[tuple[str, list[object], str]] = [
    *(
        (name, [0, -1, 2**31, 10**30, 1.0, "20", None, True], "a positive integer below 2**31")
        for name in (
            "vocab_size",
            "hidden_size",
            "num_attention_heads",
            "intermediate_size",
            "type_vocab_size",
        )
    ),
    (
        "max_position_embeddings",
        [0, -1, 1_000_001, 10**20, 1.0, "20", None, True],
        "a positive integer up to 1,000,000",
    ),
    *(
        (name, [-1, 2**31, 2.0, "3", None, False], "an integer from 0 to below 2**31")
        for name in ("num_hidden_layers", "chunk_size_feed_forward")
    ),
    *(
        (name, [-0.1, 1, 1.0, NAN, "0.1", None, True], "a number from 0 to below 1")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob")
    ),
    *((name, [0, 1, "true", None], "true or false") for name in ("use_torch_multi_head", "tie_word_embeddings")),
    ("layer_norm_eps", [0, -1e-12, INFINITY, NAN, "1e-12", None, True], "a positive, finite number"),
    ("initializer_range", [-0.02, INFINITY, NAN, "0.02", None], "a finite number of at least 0"),
    (
        "position_embedding_type",
        ["relative", "Absolute", None, 1, ["absolute"]],
        "one of absolute, sinusoidal, relative_key, relative_key_query",
    ),
    ("pooler_type", ["mean", None, 3], "one of first_token_transform, all_token_average"),
    ("norm_placement", ["before", None, True], "one of post, pre"),
    ("hidden_act", ["swooglu", "Gelu", 3, ["gelu"], True], "one of gelu, gelu_fast"),
    ("pad_token_id", [-1, 99, 1.0, "0", False], "null or an id of the vocabulary, 0 to vocab_size - 1"),
    ("pair_segment_ids", [(0, 7), (7, 0)], "below type_vocab_size, 7"),
    ("pair_segment_ids", [[0, 1], (0,), (0, 1, 1), (0, -1), (0.0, 1), None, "01"], "two segment ids"),
    ("pruned_heads", [None, [0], "0", 1], "a mapping of layer number to head numbers"),
    ("pruned_heads", [{3: (0,)}, {-1: (0,)}, {"0": (0,)}, {True: (0,)}], "a layer number, 0 to 2"),
]


@pytest.mark.parametrize(
    ("name", "value", "rule"), [(name, value, rule) for name, values, rule in BAD_VALUES for value in values]
)
def test_a_bad_value_is_refused_by_name_value_and_rule(name: str, value: object, rule: str) -> None:
    with pytest.raises(ValueError, match=name) as refusal:
        tiny_config(**{name: value})
    lines = [line for line in str(refusal.value).splitlines() if line.startswith(f"{name}: ")]
    if name == "pruned_heads" and isinstance(value, dict):
        value = next(iter(value))
    assert repr(value) in lines[0]
    assert rule in lines[0]


@pytest.mark.parametrize("name", ["layer_norm_eps", "initializer_range", "vocab_size", "hidden_act", "pruned_heads"])
def test_a_bad_value_of_any_size_is_shown_in_part(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: ") as refusal:
        tiny_config(**{name: 10**400})
    (line, *_) = str(refusal.value).splitlines()
    assert line.startswith(f"{name}: 1{'0' * 99}… is not ")


@pytest.mark.parametrize(("digits", "shown"), [(11, "'99999999999'"), (5000, f"'{'9' * 99}…")])
def test_a_layer_number_of_many_digits(digits: int, shown: str) -> None:
    with pytest.raises(ValueError, match=f"^pruned_heads: {shown} is not a layer number"):
        BertConfig.from_dict({"pruned_heads": {"9" * digits: [0]}})


def test_many_bad_layers_are_counted() -> None:
    with pytest.raises(ValueError, match="^pruned_heads: 3 is not a layer number, 0 to 2\n") as refusal:
        tiny_config(pruned_heads=dict.fromkeys(range(3, 99), (0,)))
    assert str(refusal.value).splitlines()[5:] == ["91 more of that kind"]


def test_sinusoidal_positions_are_bounded_with_their_width() -> None:
    most: dict[str, Any] = {"position_embedding_type": "sinusoidal", "hidden_size": 2**10, "num_attention_heads": 4}
    assert tiny_config(**most, max_position_embeddings=2**17).max_position_embeddings == 2**17
    with pytest.raises(
        ValueError, match=r"^max_position_embeddings: 131073 times hidden_size, 1024, is not .* 2\*\*27"
    ):
        tiny_config(**most, max_position_embeddings=2**17 + 1)
    tiny_config(**{**most, "position_embedding_type": "absolute"}, max_position_embeddings=1_000_000)


@pytest.mark.parametrize(
    ("pruned", "rule"),
    [
        ((0, 4), "head numbers, 0 to 3"),
        ((-1,), "head numbers, 0 to 3"),
        ((1.0,), "head numbers, 0 to 3"),
        ([0], "a tuple"),
        (2, "a tuple"),
        ((0, 1, 2, 3), "all 4 heads are pruned; a layer keeps at least one"),
    ],
)
def test_bad_pruned_heads_are_refused_with_their_layer(pruned: object, rule: str) -> None:
    with pytest.raises(ValueError, match=r"^pruned_heads\[1\]: ") as refusal:
        tiny_config(pruned_heads={1: pruned})
    assert rule in str(refusal.value)


def test_widths_must_divide_among_the_heads() -> None:
    with pytest.raises(ValueError, match=r"^hidden_size: 20 is not a multiple of num_attention_heads, 3$"):
        tiny_config(num_attention_heads=3)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_embedding_type": "relative_key"},
        {"position_embedding_type": "relative_key_query"},
        {"pruned_heads": {0: (1,)}},
    ],
)
def test_the_reference_path_refuses_what_it_cannot_do(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^use_torch_multi_head: true cannot be combined"):
        tiny_config(use_torch_multi_head=True, **changes)
    tiny_config(use_torch_multi_head=True, position_embedding_type="sinusoidal", pruned_heads={0: ()})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="vocab_size") as refusal:
        BertConfig.from_dict({"vocab_size": 0, "hidden_dropout_prob": 2, "hidden_act": "swooglu", "pooler_type": "max"})
    names = [line.split(":")[0] for line in str(refusal.value).splitlines()]
    assert names == ["vocab_size", "hidden_dropout_prob", "pooler_type", "hidden_act", "pad_token_id"]


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 0, "chunk_size_feed_forward": 0, "initializer_range": 0, "hidden_dropout_prob": 0},
        {"type_vocab_size": 1},
        {"pad_token_id": None},
        {"pad_token_id": 98, "pair_segment_ids": (6, 6), "hidden_act": None},
        {"pruned_heads": {0: (0, 2, 3), 2: ()}},
    ],
)
def test_values_at_the_bounds_are_allowed(changes: dict[str, Any]) -> None:
    config = tiny_config(**changes)
    assert {name: getattr(config, name) for name in changes} == changes


def test_defaults_are_those_of_transformers() -> None:
    theirs = ReferenceConfig()
    ours = BertConfig()
    shared = {name for name in FIELD_NAMES if hasattr(theirs, name)}
    assert len(shared) >= 14
    assert {name: getattr(ours, name) for name in shared} == {name: getattr(theirs, name) for name in shared}


def test_it_is_frozen_and_keyword_only() -> None:
    config: Any = tiny_config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.hidden_size = 40
    with pytest.raises(TypeError, match="positional"):
        type(config)(99)


def test_derived_facts() -> None:
    config = tiny_config(pruned_heads={1: (2, 0)})
    assert config.head_width == 5
    assert [config.kept_heads(layer) for layer in range(3)] == [[0, 1, 2, 3], [1, 3], [0, 1, 2, 3]]
    assert config.has_pair_segments
    assert tiny_config(type_vocab_size=2).has_pair_segments
    assert not tiny_config(type_vocab_size=1).has_pair_segments
    kinds = ("absolute", "sinusoidal", "relative_key", "relative_key_query")
    assert [tiny_config(position_embedding_type=k).has_relative_positions for k in kinds] == [False, False, True, True]


@pytest.mark.parametrize(
    ("changes", "model_type"),
    [
        ({}, "bert"),
        ({"hidden_act": "mish", "chunk_size_feed_forward": 3, "use_torch_multi_head": True}, "bert"),
        ({"type_vocab_size": 1, "tie_word_embeddings": False, "pad_token_id": None}, "bert"),
        ({"position_embedding_type": "sinusoidal"}, "bert_core"),
        ({"position_embedding_type": "relative_key"}, "bert_core"),
        ({"pooler_type": "all_token_average"}, "bert_core"),
        ({"norm_placement": "pre"}, "bert_core"),
        ({"pair_segment_ids": (1, 2)}, "bert_core"),
        ({"pruned_heads": {0: (1,)}}, "bert_core"),
        ({"hidden_act": None}, "bert_core"),
        ({"hidden_act": torch.sin}, "bert_core"),
    ],
)
def test_a_variant_that_transformers_cannot_represent_has_another_model_type(
    changes: dict[str, Any], model_type: str
) -> None:
    assert tiny_config(**changes).model_type == model_type


ODD_CONFIG = tiny_config(
    hidden_act=None,
    pad_token_id=None,
    position_embedding_type="relative_key_query",
    chunk_size_feed_forward=3,
    pooler_type="all_token_average",
    norm_placement="pre",
    pair_segment_ids=(3, 5),
    pruned_heads={0: (3, 1), 2: (0,)},
    tie_word_embeddings=False,
    initializer_range=0.5,
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.3,
    extra={"architectures": ["BertForPreTraining"], "名": {"a": [1, None]}},
)


@pytest.mark.parametrize("config", [BertConfig(), TINY_CONFIG, ODD_CONFIG, tiny_config(use_torch_multi_head=True)])
def test_json_round_trip(config: BertConfig, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config.to_json_file(path)
    assert BertConfig.from_json_file(path) == config
    written = json.loads(path.read_text(encoding="utf-8"))
    assert set(written) == FIELD_NAMES | {"model_type"} | set(config.extra)
    assert BertConfig.from_dict(written).to_dict() == config.to_dict() == written


def test_json_forms_of_tuples_and_integer_keys() -> None:
    values = ODD_CONFIG.to_dict()
    assert values["pruned_heads"] == {"0": [3, 1], "2": [0]}
    assert values["pair_segment_ids"] == [3, 5]
    assert values["model_type"] == "bert_core"


def test_unknown_keys_are_kept_logged_and_written_back(caplog: pytest.LogCaptureFixture) -> None:
    unknown = {"transformers_version": "4.6.0", "directionality": "bidi", "is_decoder": False, "use_cache": True}
    with caplog.at_level(logging.DEBUG, logger="bert_core.config"):
        config = BertConfig.from_dict({"model_type": "bert", "vocab_size": 99, **unknown})
    assert config.vocab_size == 99
    assert config.extra == unknown
    assert unknown.items() <= config.to_dict().items()
    assert [record.getMessage() for record in caplog.records] == [
        "config keys without a meaning here, kept: directionality, is_decoder, transformers_version, use_cache"
    ]


def test_no_unknown_keys_no_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        BertConfig.from_dict(TINY_CONFIG.to_dict())
    assert not caplog.records


def test_configs_of_real_checkpoints_are_read(caplog: pytest.LogCaptureFixture) -> None:
    theirs = ReferenceConfig(architectures=["BertForMaskedLM"], id2label={0: "a", 1: "b"}).to_dict()
    old: dict[str, Any] = {"pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3}
    old |= {"pooler_size_per_head": 128, "gradient_checkpointing": False, "classifier_dropout": None}
    with caplog.at_level(logging.INFO):
        config = BertConfig.from_dict({**theirs, **old, "pooler_type": "first_token_transform"})
    assert dataclasses.replace(config, extra={}) == BertConfig()
    assert old.items() <= config.extra.items()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("position_embeddings_type", "position_embedding_type"),
        ("layer_norm_epsilon", "layer_norm_eps"),
        ("num_attention_head", "num_attention_heads"),
        ("hidden_sizes", "hidden_size"),
        ("attention_probs_dropout", "attention_probs_dropout_prob"),
        ("prune_heads", "pruned_heads"),
        ("Norm_placement", "norm_placement"),
    ],
)
def test_near_misses_of_known_keys_are_refused(written: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"^{written}: no such key; did you mean {meant}\\?$"):
        BertConfig.from_dict({written: 1})


@pytest.mark.parametrize("name", ["is_decoder", "add_cross_attention"])
def test_decoders_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: True asks for a decoder"):
        BertConfig.from_dict({name: True})


@pytest.mark.parametrize("model_type", ["roberta", "distilbert", "Bert", "", None, 3])
def test_other_architectures_are_refused(model_type: object) -> None:
    with pytest.raises(ValueError, match="^model_type: .* is another architecture; this loads bert and bert_core$"):
        BertConfig.from_dict({"model_type": model_type})


@pytest.mark.parametrize("values", [{}, {"model_type": "bert"}, {"model_type": "bert_core"}])
def test_a_config_without_a_model_type_is_berts(values: dict[str, Any]) -> None:
    assert BertConfig.from_dict(values) == BertConfig()


def test_from_dict_tells_foreign_keys_near_misses_and_bad_values_together() -> None:
    with pytest.raises(ValueError, match="model_type") as refusal:
        BertConfig.from_dict({"model_type": "t5", "hidden_sizes": 3, "vocab_size": -5, "is_decoder": True})
    names = [line.split(":")[0] for line in str(refusal.value).splitlines()]
    assert names == ["model_type", "is_decoder", "hidden_sizes", "vocab_size", "pad_token_id"]


@pytest.mark.parametrize("value", [{"x": [0]}, {"-1": [0]}, {"0": 3}, {"0": ["1"]}, {"0": None}, [0, 1], "0"])
def test_pruned_heads_of_a_file_must_be_numbers(value: object) -> None:
    with pytest.raises(ValueError, match="^pruned_heads"):
        BertConfig.from_dict({"pruned_heads": value})


def test_a_callable_activation_has_no_json_form(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^hidden_act: a callable has no name"):
        tiny_config(hidden_act=torch.sin).to_json_file(tmp_path / "config.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", [b"[1]", b"null", b'"bert"', b"{", b"", b'\xff{"vocab_size": 3}'])
def test_a_file_that_is_not_a_json_object_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"expected|Expecting|codec"):
        BertConfig.from_json_file(path)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        BertConfig.from_json_file(tmp_path / "config.json")
