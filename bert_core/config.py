"""The shape of a BERT model, with the field names of Hugging Face's `config.json`."""

from __future__ import annotations

import dataclasses
import difflib
import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from bert_core.activations import ACTIVATIONS, Activation, get_activation
from bert_core.checkpoint_files import first_few, shortened, shown_value

logger = logging.getLogger(__name__)

PositionKind: TypeAlias = Literal["absolute", "sinusoidal", "relative_key", "relative_key_query"]
PoolerType: TypeAlias = Literal["first_token_transform", "all_token_average"]
NormPlacement: TypeAlias = Literal["post", "pre"]

MODEL_TYPES = ("bert", "bert_core")

# What our models do and `transformers`' BertModel cannot: a config that leaves these values is `model_type: bert_core`.
TRANSFORMERS_VALUES: Mapping[str, Any] = {
    "position_embedding_type": "absolute",
    "pooler_type": "first_token_transform",
    "norm_placement": "post",
    "pair_segment_ids": (0, 1),
    "pruned_heads": {},
}


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """Hyperparameters of a BERT model (Devlin et al. 2018, https://arxiv.org/abs/1810.04805).

    The defaults are bert-base's, as in `transformers`. Fields that `transformers` does not have:

    norm_placement: "post" normalises after each residual sum, as BERT does; "pre" normalises what goes into each
        sub-layer (Xiong et al. 2020), without a final norm.
    pair_segment_ids: segment ids of the two halves of a sentence pair.
    pooler_type: what the pooler's dense layer sees, the first token or the mean of all tokens.
    position_embedding_type: learned ("absolute"), fixed ("sinusoidal", Vaswani et al. 2017), or added to the attention
        scores ("relative_key", Shaw et al. 2018; "relative_key_query", Huang et al. 2020, method 4).
    use_torch_multi_head: attention by `torch.nn.MultiheadAttention`, a reference path that is slower.
    pruned_heads: layer number to the original numbers of the heads that were removed there.
    extra: keys of a `config.json` that are none of ours; they are written back by `to_dict`.

    Raises:
        ValueError: one line for every field that has a bad value, with the value and the rule.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str | Activation | None = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    position_embedding_type: PositionKind = "absolute"
    chunk_size_feed_forward: int = 0
    pooler_type: PoolerType = "first_token_transform"
    norm_placement: NormPlacement = "post"
    pair_segment_ids: tuple[int, int] = (0, 1)
    use_torch_multi_head: bool = False
    pruned_heads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    tie_word_embeddings: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problems := list(_problems(self)):
            raise ValueError("\n".join(problems))

    @property
    def head_width(self) -> int:
        """Width of one attention head, before and after pruning."""
        return self.hidden_size // self.num_attention_heads

    @property
    def has_relative_positions(self) -> bool:
        """Whether positions enter through the attention scores rather than the embeddings."""
        return self.position_embedding_type in ("relative_key", "relative_key_query")

    @property
    def has_pair_segments(self) -> bool:
        """Whether both halves of a sentence pair have a segment embedding (not so with `type_vocab_size` 1)."""
        return max(self.pair_segment_ids) < self.type_vocab_size

    @property
    def model_type(self) -> str:
        """`bert` if `transformers` can represent this model, else `bert_core`, which it refuses."""
        ordinary = all(getattr(self, name) == value for name, value in TRANSFORMERS_VALUES.items())
        return "bert" if ordinary and self.hidden_act in ACTIVATIONS else "bert_core"

    def kept_heads(self, layer: int) -> list[int]:
        """Original numbers of the attention heads that a layer still has, ascending."""
        pruned = self.pruned_heads.get(layer, ())
        return [head for head in range(self.num_attention_heads) if head not in pruned]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BertConfig:
        """Read the keys of a `config.json`; unknown ones are kept in `extra` and logged.

        Raises:
            ValueError: a bad value, a near miss of a known key, another `model_type`, or a decoder.
        """
        problems = [*_foreign(values), *_near_misses(values)]
        known = {name: _from_json(name, value) for name, value in values.items() if name in FIELD_NAMES}
        extra = {name: value for name, value in values.items() if name not in FIELD_NAMES and name != "model_type"}
        try:
            config = cls(**known, extra=extra)
        except ValueError as error:
            raise ValueError("\n".join([*problems, str(error)])) from None
        if problems:
            raise ValueError("\n".join(problems))
        if extra:
            logger.debug("config keys without a meaning here, kept: %s", shortened(sorted(extra), limit=40))
        return config

    def to_dict(self) -> dict[str, Any]:
        """The keys of a `config.json`, `extra` and `model_type` included.

        Raises:
            ValueError: `hidden_act` is a callable, which has no name to write.
        """
        if callable(self.hidden_act):
            raise ValueError("hidden_act: a callable has no name to write to a config file; use a name")
        known = {name: getattr(self, name) for name in sorted(FIELD_NAMES)}
        known["pair_segment_ids"] = list(self.pair_segment_ids)
        known["pruned_heads"] = {str(layer): list(heads) for layer, heads in self.pruned_heads.items()}
        return {**self.extra, **known, "model_type": self.model_type}

    @classmethod
    def from_json_file(cls, path: str | PathLike[str]) -> BertConfig:
        """Read a `config.json`.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not a JSON object in UTF-8, or `from_dict` refuses what it says.
        """
        values = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError(f"expected a JSON object of model settings, found {type(values).__name__}")
        return cls.from_dict(values)

    def to_json_file(self, path: str | PathLike[str]) -> None:
        """Write a `config.json`; `from_json_file` reads it back equal."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


FIELD_NAMES = frozenset(field.name for field in dataclasses.fields(BertConfig)) - {"extra"}

_SIZES = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "type_vocab_size")
_COUNTS = ("num_hidden_layers", "chunk_size_feed_forward")
_SIZE_LIMIT = 2**31
_MAX_POSITIONS = 1_000_000
# Sinusoidal positions are computed, so nothing in a checkpoint confirms their number: 1 GiB in float64.
_MAX_SINUSOIDAL_NUMBERS = 2**27
_PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_FLAGS = ("use_torch_multi_head", "tie_word_embeddings")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "position_embedding_type": get_args(PositionKind),
    "pooler_type": get_args(PoolerType),
    "norm_placement": get_args(NormPlacement),
}


def _from_json(name: str, value: Any) -> Any:
    """JSON has no tuples and no integer keys; anything that does not fit is left for `_problems` to name."""
    if name == "pair_segment_ids" and isinstance(value, list):
        return tuple(value)
    if name == "pruned_heads" and isinstance(value, dict):
        return {
            _layer_of_key(layer): tuple(heads) if isinstance(heads, list) else heads for layer, heads in value.items()
        }
    return value


def _layer_of_key(key: Any) -> Any:
    return int(key) if isinstance(key, str) and key.isdecimal() and len(key) <= 10 else key


def _foreign(values: Mapping[str, Any]) -> Iterator[str]:
    model_type = values.get("model_type", "bert")
    if model_type not in MODEL_TYPES:
        yield f"model_type: {shown_value(model_type)} is another architecture; this loads {' and '.join(MODEL_TYPES)}"
    for name in ("is_decoder", "add_cross_attention"):
        if values.get(name):
            rule = "this is an encoder, so it must be false or absent"
            yield f"{name}: {shown_value(values[name])} asks for a decoder; {rule}"


def _near_misses(values: Mapping[str, Any]) -> Iterator[str]:
    for name in values:
        if name in FIELD_NAMES or name == "model_type":
            continue
        if close := difflib.get_close_matches(name, FIELD_NAMES, n=1, cutoff=0.85):
            yield f"{name}: no such key; did you mean {close[0]}?"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_size(value: object, *, at_least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and at_least <= value < _SIZE_LIMIT


def _is_finite(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _problems(config: BertConfig) -> Iterator[str]:
    yield from _scalar_problems(config)
    yield from _position_problems(config)
    yield from _head_problems(config)
    yield from _segment_problems(config)
    try:
        get_activation(config.hidden_act)
    except (ValueError, TypeError):
        yield f"hidden_act: {shown_value(config.hidden_act)} is not one of {', '.join(sorted(ACTIVATIONS))}, null"
    pad = config.pad_token_id
    if pad is not None and not (_is_int(pad) and _is_int(config.vocab_size) and 0 <= pad < config.vocab_size):
        yield f"pad_token_id: {shown_value(pad)} is not null or an id of the vocabulary, 0 to vocab_size - 1"


def _scalar_problems(config: BertConfig) -> Iterator[str]:
    def broken(names: tuple[str, ...], rule: str, holds: Any) -> Iterator[str]:
        for name in names:
            if not holds(value := getattr(config, name)):
                yield f"{name}: {shown_value(value)} is not {rule}"

    yield from broken(_SIZES, "a positive integer below 2**31", lambda v: _is_size(v, at_least=1))
    yield from broken(_COUNTS, "an integer from 0 to below 2**31", lambda v: _is_size(v, at_least=0))
    yield from broken(_PROBABILITIES, "a number from 0 to below 1", lambda v: _is_finite(v) and 0 <= v < 1)
    yield from broken(_FLAGS, "true or false", lambda v: isinstance(v, bool))
    for name, allowed in _CHOICES.items():
        yield from broken((name,), f"one of {', '.join(allowed)}", lambda v, allowed=allowed: v in allowed)
    positive = "a positive, finite number"
    yield from broken(("layer_norm_eps",), positive, lambda v: _is_finite(v) and v > 0)
    at_least_zero = "a finite number of at least 0"
    yield from broken(("initializer_range",), at_least_zero, lambda v: _is_finite(v) and v >= 0)


def _position_problems(config: BertConfig) -> Iterator[str]:
    positions, width = config.max_position_embeddings, config.hidden_size
    if not (_is_int(positions) and 1 <= positions <= _MAX_POSITIONS):
        yield f"max_position_embeddings: {shown_value(positions)} is not a positive integer up to {_MAX_POSITIONS:,}"
        return
    sinusoidal = config.position_embedding_type == "sinusoidal" and _is_size(width, at_least=1)
    if sinusoidal and positions * width > _MAX_SINUSOIDAL_NUMBERS:
        rule = "is not a number up to 2**27, as with sinusoidal positions it must be"
        yield f"max_position_embeddings: {positions} times hidden_size, {width}, {rule}"


def _head_problems(config: BertConfig) -> Iterator[str]:
    width, heads, layers = config.hidden_size, config.num_attention_heads, config.num_hidden_layers
    if not all(_is_size(value, at_least=at_least) for value, at_least in ((width, 1), (heads, 1), (layers, 0))):
        return
    if width % heads:
        yield f"hidden_size: {width} is not a multiple of num_attention_heads, {heads}"
    pruned_heads: object = config.pruned_heads
    if not isinstance(pruned_heads, Mapping):
        yield f"pruned_heads: {shown_value(pruned_heads)} is not a mapping of layer number to head numbers"
        return
    yield from first_few(list(_pruning_problems(pruned_heads, layers=layers, heads=heads)))
    if config.use_torch_multi_head and (config.has_relative_positions or any(config.pruned_heads.values())):
        yield "use_torch_multi_head: true cannot be combined with relative positions or pruned heads"


def _pruning_problems(pruned_heads: Mapping[Any, Any], *, layers: int, heads: int) -> Iterator[str]:
    for layer, pruned in pruned_heads.items():
        if not (_is_int(layer) and 0 <= layer < layers):
            yield f"pruned_heads: {shown_value(layer)} is not a layer number, 0 to {layers - 1}"
        elif not isinstance(pruned, tuple) or not all(_is_int(head) and 0 <= head < heads for head in pruned):
            rule = f"a tuple (in JSON a list) of head numbers, 0 to {heads - 1}"
            yield f"pruned_heads[{layer}]: {shown_value(pruned)} is not {rule}"
        elif len(set(pruned)) >= heads:
            yield f"pruned_heads[{layer}]: all {heads} heads are pruned; a layer keeps at least one"


def _segment_problems(config: BertConfig) -> Iterator[str]:
    pair, segments = config.pair_segment_ids, config.type_vocab_size
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(_is_size(id_, at_least=0) for id_ in pair)):
        yield f"pair_segment_ids: {shown_value(pair)} is not two segment ids"
    # With one segment there are no pairs, and the default (0, 1) is only left alone.
    elif _is_int(segments) and segments > 1 and max(pair) >= segments:
        yield f"pair_segment_ids: {shown_value(pair)} has an id that is not below type_vocab_size, {segments}"
