"""The names of tensors in Hugging Face's BERT checkpoints, and the parameters of ours that they fill.

A canonical name is the one that `transformers` writes today for `BertForPreTraining`. Files of other ages and makers
spell it otherwise: without `bert.`, behind `module.`, with `LayerNorm.gamma` and `LayerNorm.beta`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from bert_core.checkpoint_files import first_few, shown
from bert_core.config import BertConfig
from bert_core.heads import Heads

WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
SEGMENT_EMBEDDINGS = "bert.embeddings.token_type_embeddings.weight"
POSITION_EMBEDDINGS = "bert.embeddings.position_embeddings.weight"
DECODER_WEIGHT = "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"
PREDICTION_BIAS = "cls.predictions.bias"

_EMBEDDING_MODULES = {"bert.embeddings.LayerNorm": "bert.embeddings.norm"}
_LAYER_MODULES = {
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.up",
    "output.dense": "feed_forward.down",
    "output.LayerNorm": "feed_forward_norm",
}
_POOLER_MODULES = {"bert.pooler.dense": "bert.pooler.dense"}
_MLM_MODULES = {
    "cls.predictions.transform.dense": "mlm.dense",
    "cls.predictions.transform.LayerNorm": "mlm.norm",
}
_NSP_MODULES = {"cls.seq_relationship": "nsp.classifier"}

_WRAPPERS = ("module.", "model.")
_BARE_PARTS = ("embeddings.", "encoder.", "pooler.")
_PREFIXED_PARTS = ("bert.", "cls.")
_OLD_ENDINGS = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}
_BUFFERS = frozenset({"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a stored tensor goes: a parameter, or one third of its rows (0 query, 1 key, 2 value)."""

    parameter: str
    third: int | None = None

    def part(self, whole: Tensor) -> Tensor:
        """The rows of the parameter, or of its gradient, that the stored tensor is; a view."""
        return whole if self.third is None else whole.chunk(3)[self.third]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalNames:
    """The names of a checkpoint by their canonical spelling.

    spelling: canonical name to the name in the file.
    problems: files that mix spellings, one line each.
    """

    spelling: dict[str, str]
    problems: list[str] = field(default_factory=list)


def _tensors(modules: dict[str, str], *, stored: str = "", ours: str = "") -> Iterator[tuple[str, Target]]:
    for stored_module, our_module in modules.items():
        for kind in ("weight", "bias"):
            yield f"{stored}{stored_module}.{kind}", Target(parameter=f"{ours}{our_module}.{kind}")


def _layer_tensors(number: int, *, relative_positions: bool) -> Iterator[tuple[str, Target]]:
    stored, ours = f"bert.encoder.layer.{number}.", f"bert.encoder.layers.{number}."
    for third, part in enumerate(("query", "key", "value")):
        for kind in ("weight", "bias"):
            target = Target(parameter=f"{ours}attention.qkv.{kind}", third=third)
            yield f"{stored}attention.self.{part}.{kind}", target
    if relative_positions:
        target = Target(parameter=f"{ours}attention.distance.weight")
        yield f"{stored}attention.self.distance_embedding.weight", target
    yield from _tensors(_LAYER_MODULES, stored=stored, ours=ours)


def canonical_targets(config: BertConfig, *, heads: Heads) -> dict[str, Target]:
    """Every tensor that a model of this shape needs, by canonical name, in the order of the model."""
    targets = {WORD_EMBEDDINGS: Target(parameter="bert.embeddings.token.weight")}
    if config.position_embedding_type == "absolute":
        targets[POSITION_EMBEDDINGS] = Target(parameter="bert.embeddings.position.weight")
    targets[SEGMENT_EMBEDDINGS] = Target(parameter="bert.embeddings.segment.weight")
    targets.update(_tensors(_EMBEDDING_MODULES))
    for number in range(config.num_hidden_layers):
        targets.update(_layer_tensors(number, relative_positions=config.has_relative_positions))
    if heads.pooler:
        targets.update(_tensors(_POOLER_MODULES))
    if heads.mlm:
        targets.update(_tensors(_MLM_MODULES))
        targets[decoder_bias_names(config)[0]] = Target(parameter="mlm.decoder.bias")
        if not config.tie_word_embeddings:
            targets[DECODER_WEIGHT] = Target(parameter="mlm.decoder.weight")
    if heads.nsp:
        targets.update(_tensors(_NSP_MODULES))
    return targets


def decoder_bias_names(config: BertConfig) -> tuple[str, str]:
    """The name of the MLM bias, and the one under which it may be stored instead.

    The two are one tensor where the decoder is tied. Where it is not, `transformers` computes with the decoder's.
    """
    return (PREDICTION_BIAS, DECODER_BIAS) if config.tie_word_embeddings else (DECODER_BIAS, PREDICTION_BIAS)


def second_copies(config: BertConfig, *, heads: Heads) -> dict[str, str]:
    """Names under which a file may hold a tied tensor a second time, to the name of the first."""
    if not (heads.mlm and config.tie_word_embeddings):
        return {}
    return {DECODER_WEIGHT: WORD_EMBEDDINGS, DECODER_BIAS: PREDICTION_BIAS}


def ignored_names(config: BertConfig, *, heads: Heads) -> frozenset[str]:
    """Names whose tensors are known and not needed.

    These are buffers that old versions of `transformers` wrote; the absolute positions that it writes beside relative
    ones; the bias that it keeps and does not use beside an untied decoder; and an MLM head that has no bias, hence is
    not one.
    """
    ignored = set(_BUFFERS)
    if config.has_relative_positions:
        ignored.add(POSITION_EMBEDDINGS)
    if heads.mlm and not config.tie_word_embeddings:
        ignored.add(PREDICTION_BIAS)
    if not heads.mlm:
        ignored |= {DECODER_WEIGHT, *dict(_tensors(_MLM_MODULES))}
    return frozenset(ignored)


def stored_heads(names: Collection[str]) -> Heads:
    """The heads of which a file holds something, by its canonical names.

    An MLM head is there if its bias is: all else of the decoder may be the word embeddings'. A next-sentence head
    brings the pooler that it reads.
    """
    held = set(names)
    nsp = not held.isdisjoint(dict(_tensors(_NSP_MODULES)))
    return Heads(
        pooler=nsp or not held.isdisjoint(dict(_tensors(_POOLER_MODULES))),
        mlm=PREDICTION_BIAS in held or DECODER_BIAS in held,
        nsp=nsp,
    )


def canonical_names(names: Collection[str]) -> CanonicalNames:
    """Translate the names of a file; a prefix is dropped only if every name carries it.

    Names that are none of BERT's keep their spelling.
    """
    wrapper = _common_wrapper(names)
    bare, prefixed = (
        _first_with(names, _BARE_PARTS, wrapper=wrapper),
        _first_with(names, _PREFIXED_PARTS, wrapper=wrapper),
    )
    problems = []
    if bare is not None and prefixed is not None:
        problems.append(
            "two kinds of names in one checkpoint, with the prefix bert. or cls. "
            f"({shown(prefixed)}) and without ({shown(bare)})"
        )
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        spellings[_canonical(name.removeprefix(wrapper))].append(name)
    twice = [" and ".join(map(shown, found[:2])) for found in spellings.values() if len(found) > 1]
    problems += first_few([f"one tensor under two names: {found}" for found in twice])
    return CanonicalNames(spelling={name: found[0] for name, found in spellings.items()}, problems=problems)


def _common_wrapper(names: Iterable[str]) -> str:
    """What `DataParallel` and the like put before every name, however often."""
    wrapper = ""
    names = list(names)
    while names and (layer := next((w for w in _WRAPPERS if all(n.startswith(wrapper + w) for n in names)), None)):
        wrapper += layer
    return wrapper


def _first_with(names: Iterable[str], beginnings: tuple[str, ...], *, wrapper: str) -> str | None:
    return next((name for name in names if name.removeprefix(wrapper).startswith(beginnings)), None)


def _canonical(name: str) -> str:
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return f"bert.{name}" if name.startswith(_BARE_PARTS) else name
