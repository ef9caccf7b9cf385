"""Does what a checkpoint folder holds make a model? All that speaks against it is told at once, as lines of text."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from bert_core.checkpoint_files import folder_fault, read_json_object, shortened, shown, shown_value
from bert_core.config import BertConfig
from bert_core.empty_model import empty_model
from bert_core.heads import Heads
from bert_core.vocabulary_files import vocabulary_sizes
from bert_core.weight_files import StoredTensor, read_tensors, stored_tensors
from bert_core.weight_layout import WeightLayout, weight_layout
from bert_core.weight_names import (
    POSITION_EMBEDDINGS,
    SEGMENT_EMBEDDINGS,
    WORD_EMBEDDINGS,
    Target,
    canonical_names,
    canonical_targets,
    decoder_bias_names,
    ignored_names,
    second_copies,
    stored_heads,
)

logger = logging.getLogger(__name__)

_LAYER = re.compile(r"bert\.encoder\.layer\.([0-9]{1,9})\.")
_BACKBONE = ("bert.embeddings.", "bert.encoder.")

# Tensors whose shapes are settings: what else has a wrong shape follows from these.
_SIZES = {
    WORD_EMBEDDINGS: ("vocab_size", "hidden_size"),
    POSITION_EMBEDDINGS: ("max_position_embeddings", "hidden_size"),
    SEGMENT_EMBEDDINGS: ("type_vocab_size", "hidden_size"),
    "bert.encoder.layer.0.intermediate.dense.weight": ("intermediate_size", "hidden_size"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContents:
    """What to build and where every tensor of it is.

    heads: those that the files hold.
    sources: canonical name to the tensor in a file, for all that the model needs.
    """

    config: BertConfig
    heads: Heads
    sources: Mapping[str, StoredTensor]


def inspect_folder(folder: Path) -> tuple[CheckpointContents | None, list[str]]:
    """What a folder holds, and everything that is wrong with it; contents are None if anything is.

    Headers are read and no weights, but for tied tensors that are stored twice, which are compared.
    """
    if fault := folder_fault(folder):
        return None, [fault]
    config, problems = read_config(folder)
    tensors, weight_problems = _read_headers(folder)
    problems += weight_problems
    contents = None
    if config is not None and not weight_problems:
        contents, fit_problems = _fit(tensors, config=config)
        problems += fit_problems
    problems += _vocabulary_problems(folder, config=config)
    return None if problems else contents, problems


def read_config(folder: Path) -> tuple[BertConfig | None, list[str]]:
    """What `config.json` says, and everything that is wrong with it."""
    try:
        values = read_json_object(folder / "config.json")
    except ValueError as error:
        return None, [str(error)]
    try:
        return BertConfig.from_dict(values), []
    except ValueError as error:
        return None, [f"config.json: {line}" for line in str(error).splitlines()]


def _read_headers(folder: Path) -> tuple[dict[str, StoredTensor], list[str]]:
    """The tensors of all weights files by name."""
    layout = weight_layout(folder)
    if layout.passed_over:
        logger.warning("%s: weights files that are not used: %s", folder, shortened(layout.passed_over))
    problems = list(layout.problems)
    stored = []
    for file in layout.files:
        try:
            stored += stored_tensors(file)
        except ValueError as error:
            problems.append(str(error))
    if not problems:
        problems += _index_problems(stored, layout=layout)
    return {tensor.name: tensor for tensor in stored}, problems


def _index_problems(stored: Iterable[StoredTensor], *, layout: WeightLayout) -> Iterator[str]:
    if layout.listed is None:
        return
    listed = {(name, file) for name, file in layout.listed.items()}
    found = {(tensor.name, tensor.file.name) for tensor in stored}
    if absent := sorted(name for name, _ in listed - found):
        yield f"tensors that are not in the shard in which the index lists them: {shortened(absent)}"
    if unlisted := sorted(name for name, _ in found - listed):
        yield f"tensors in a shard in which the index does not list them: {shortened(unlisted)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """A checkpoint beside the model that its config asks for.

    held: the file's tensors by canonical name.
    targets: what the model needs.
    sources: what fills these, as far as it is there.
    """

    config: BertConfig
    heads: Heads
    held: Mapping[str, StoredTensor]
    targets: Mapping[str, Target]
    sources: Mapping[str, StoredTensor]


def _fit(tensors: Mapping[str, StoredTensor], *, config: BertConfig) -> tuple[CheckpointContents, list[str]]:
    canonical = canonical_names(tensors)
    problems = list(canonical.problems)
    held = {name: tensors[spelling] for name, spelling in canonical.spelling.items()}
    layers = {int(match[1]) for name in held if (match := _LAYER.match(name))}
    if len(layers) != config.num_hidden_layers:
        problems.append(f"config.json: num_hidden_layers is {config.num_hidden_layers}, the weights have {len(layers)}")
    # One layer more than there are is enough to compare with, however many the config asks for.
    compared = _compare(held, config=_with_layers(config, layers=min(config.num_hidden_layers, len(layers) + 1)))
    for check in (_name_problems, _dtype_problems, _shape_problems, _copy_problems):
        problems += check(compared)
    _warn_of_unused_head(compared)
    return CheckpointContents(config=config, heads=compared.heads, sources=compared.sources), problems


def _with_layers(config: BertConfig, *, layers: int) -> BertConfig:
    pruned = {layer: numbers for layer, numbers in config.pruned_heads.items() if layer < layers}
    return dataclasses.replace(config, num_hidden_layers=layers, pruned_heads=pruned)


def _compare(held: Mapping[str, StoredTensor], *, config: BertConfig) -> _Comparison:
    heads = stored_heads(held)
    targets = canonical_targets(config, heads=heads)
    sources = {name: held[name] for name in targets if name in held}
    bias, stand_in = decoder_bias_names(config)
    if heads.mlm and bias not in held:
        sources[bias] = held[stand_in]
    return _Comparison(config=config, heads=heads, held=held, targets=targets, sources=sources)


def _warn_of_unused_head(compared: _Comparison) -> None:
    unused = [] if compared.heads.mlm else [name for name in compared.held if name.startswith("cls.predictions.")]
    if unused:
        logger.warning("no MLM head, for its bias is missing; not used: %s", shortened(unused))


def _name_problems(compared: _Comparison) -> Iterator[str]:
    if not any(name.startswith(_BACKBONE) for name in compared.held):
        yield "no tensor is named as in a BERT encoder: weights of another architecture, or under an unknown prefix"
    if missing := [name for name in compared.targets if name not in compared.sources]:
        yield f"missing tensors: {shortened(missing)}"
    config, heads = compared.config, compared.heads
    known = {*compared.targets, *second_copies(config, heads=heads), *ignored_names(config, heads=heads)}
    if unexpected := [tensor.name for name, tensor in compared.held.items() if name not in known]:
        cause = "a head for another task, more layers, or another architecture"
        yield f"unexpected tensors, as of {cause}: {shortened(unexpected)}"


def _dtype_problems(compared: _Comparison) -> Iterator[str]:
    if odd := [f"{tensor.name} is {tensor.dtype}" for tensor in compared.sources.values() if not tensor.is_weight]:
        yield f"tensors that are not floating-point numbers of 16, 32 or 64 bits: {shortened(odd)}"


def _shape_problems(compared: _Comparison) -> Iterator[str]:
    config, sources = compared.config, compared.sources
    by_settings = {
        name: tuple(getattr(config, field) for field in fields)
        for name, fields in _SIZES.items()
        if name in compared.targets
    }
    wrong = [_shape_problem(name, sources[name], shape=shape) for name, shape in by_settings.items() if name in sources]
    # The model is built, without memory, only at sizes that the file confirms.
    if not any(wrong) and by_settings.keys() <= sources.keys():
        shapes = _model_shapes(compared)
        wrong = [_shape_problem(name, tensor, shape=shapes[name]) for name, tensor in sources.items()]
    if faults := list(filter(None, wrong)):
        yield f"tensors of the wrong shape: {shortened(faults)}"


def _shape_problem(name: str, tensor: StoredTensor, *, shape: tuple[int, ...]) -> str | None:
    if tensor.shape == shape:
        return None
    settings = f" ({', '.join(_SIZES[name])})" if name in _SIZES else ""
    return f"{tensor.name} is {list(tensor.shape)}, by config.json it must be {list(shape)}{settings}"


def _model_shapes(compared: _Comparison) -> dict[str, tuple[int, ...]]:
    model = empty_model(compared.config, heads=compared.heads)
    return {
        name: tuple(target.part(model.get_parameter(target.parameter)).shape)
        for name, target in compared.targets.items()
    }


def _copy_problems(compared: _Comparison) -> Iterator[str]:
    """Tied tensors that are stored twice must be the same."""
    for copy, name in second_copies(compared.config, heads=compared.heads).items():
        if copy in compared.held and name in compared.held:
            first, second = compared.held[name], compared.held[copy]
            if first.is_weight and not _equal(first, second):
                cause = "tie_word_embeddings in config.json makes them one; set it to false if they are two"
                yield f"{shown(first.name)} and {shown(second.name)} differ, but {cause}"


def _equal(first: StoredTensor, second: StoredTensor) -> bool:
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return False
    values, others = (tensor for _, tensor in read_tensors([first, second]))
    return torch.equal(values, others)


def _vocabulary_problems(folder: Path, *, config: BertConfig | None) -> Iterator[str]:
    sizes, problems = vocabulary_sizes(folder)
    yield from problems
    for name, size in sizes.items():
        if config is not None and size > config.vocab_size:
            yield f"{name}: has ids up to {shown_value(size - 1)}, but vocab_size in config.json is {config.vocab_size}"
