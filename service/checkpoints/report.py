"""What a checkpoint folder holds and whether it can be served, from its headers and small files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bert_core import BertTokenizer, CheckpointError
from bert_core.checkpoint_contents import CheckpointContents, inspect_folder, read_config
from bert_core.checkpoint_files import folder_fault
from bert_core.empty_model import empty_model
from service.checkpoints.fetching import needed_files
from service.engine.loading import model_info
from service.engine.sentence_files import read_sentence_files
from service.tasks import Pooling

ReadT = TypeVar("ReadT")

_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)

# As safetensors writes them; pickles give them in full.
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsReport:
    """Facts from the headers of sound weights.

    heads: of `pooler`, `mlm` and `nsp`, those that are there.
    parameters: numbers learned; a shared matrix counts once.
    stored_dtypes: of the tensors in the files, whatever they become when loaded.
    """

    heads: tuple[str, ...]
    heads_missing: tuple[str, ...]
    parameters: int
    stored_dtypes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerReport:
    """Facts about a sound tokenizer; `lowercase` is None where the normaliser is not BERT's."""

    vocab_size: int
    lowercase: bool | None
    mask_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingReport:
    """How a sound checkpoint is served by default; the fields are those of `ModelInfo`."""

    capabilities: Mapping[str, bool]
    pooling: Pooling
    max_input_length: int
    max_embed_length: int
    prompts: tuple[str, ...]
    default_prompt_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """A part is None if problems stand in its way.

    files: those that a checkpoint is loaded from, relative to its folder.
    size_bytes: of these files together.
    config: the sizes that `config.json` gives.
    problems: everything that is wrong, one line each; without any, the checkpoint can be served.
    """

    files: tuple[str, ...]
    size_bytes: int
    config: Mapping[str, object] | None
    weights: WeightsReport | None
    tokenizer: TokenizerReport | None
    serving: ServingReport | None
    problems: tuple[str, ...]


def report_of_problems(problems: Iterable[str]) -> CheckpointReport:
    """The report about a checkpoint of which nothing is here but what is wrong with it."""
    return CheckpointReport(
        files=(), size_bytes=0, config=None, weights=None, tokenizer=None, serving=None, problems=tuple(problems)
    )


def inspect_checkpoint(folder: Path) -> CheckpointReport:
    """Look at a folder; no weights are read, but for tied tensors that are stored twice, which are compared."""
    if fault := folder_fault(folder):
        return report_of_problems([fault])
    config, _ = read_config(folder)
    contents, problems = inspect_folder(folder)
    tokenizer = _read(lambda: BertTokenizer.from_pretrained(folder), problems)
    serving = _read(lambda: _serving(folder, contents=contents, tokenizer=tokenizer), problems)
    files = needed_files(folder)
    return CheckpointReport(
        files=tuple(file.as_posix() for file in files),
        size_bytes=sum((folder / file).stat().st_size for file in files),
        config=None if config is None else {name: getattr(config, name) for name in _SIZES},
        weights=None if contents is None else _weights(contents),
        tokenizer=None if tokenizer is None else _tokenizer(tokenizer),
        serving=None if problems else serving,
        problems=tuple(dict.fromkeys(problems)),
    )


def _read(part: Callable[[], ReadT], problems: list[str]) -> ReadT | None:
    try:
        return part()
    except CheckpointError as error:
        problems.extend(error.problems)
        return None


def _weights(contents: CheckpointContents) -> WeightsReport:
    return WeightsReport(
        heads=contents.heads.present,
        heads_missing=contents.heads.missing,
        parameters=empty_model(contents.config, heads=contents.heads).num_parameters(),
        stored_dtypes=tuple(sorted({_DTYPES.get(tensor.dtype, tensor.dtype) for tensor in contents.sources.values()})),
    )


def _tokenizer(tokenizer: BertTokenizer) -> TokenizerReport:
    return TokenizerReport(
        vocab_size=tokenizer.vocab_size, lowercase=tokenizer.lowercase, mask_token=tokenizer.mask_token
    )


def _serving(
    folder: Path, *, contents: CheckpointContents | None, tokenizer: BertTokenizer | None
) -> ServingReport | None:
    sentence_files = read_sentence_files(folder)
    if contents is None or tokenizer is None:
        return None
    info = model_info(
        empty_model(contents.config, heads=contents.heads),
        tokenizer=tokenizer,
        sentence_files=sentence_files,
        model_id=str(folder),
        revision=None,
        pooling=None,
    )
    return ServingReport(
        capabilities=info.capabilities,
        pooling=info.pooling,
        max_input_length=info.max_input_length,
        max_embed_length=info.max_embed_length,
        prompts=tuple(sentence_files.prompts),
        default_prompt_name=sentence_files.default_prompt_name,
    )
