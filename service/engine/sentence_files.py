"""What sentence-transformers files in a checkpoint folder say about embeddings.

`modules.json` lists what a text passes through; a folder without it may still have `1_Pooling/config.json`. What these
files ask for and the engine does not have is an error, never left out: the vectors would be others.
Format: https://sbert.net, versions 2 to 5.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert_core import CheckpointError
from bert_core.checkpoint_files import is_plain_name, read_json, read_json_object, shown
from service.tasks import Pooling

_POOLING_FOLDER = "1_Pooling"

# Their names of what we have.
_POOLING_KINDS: Mapping[str, Pooling] = {"cls": "cls", "mean": "mean", "max": "max"}
_POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_CHAINS = (
    ["Transformer"],
    ["Transformer", "Pooling"],
    ["Transformer", "Pooling", "Normalize"],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceFiles:
    """None is: the files do not say.

    pooling: how token vectors become one.
    max_length: the longest sequence for embeddings, in tokens, special ones counted.
    prompts: name to the text that is put before an input.
    default_prompt_name: the prompt that is used where none is asked for.
    """

    pooling: Pooling | None = None
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None


def read_sentence_files(folder: Path) -> SentenceFiles:
    """Read the sentence-transformers files of a folder, if there are any.

    Raises:
        CheckpointError: a file that is broken, or asks for what the engine does not have; all of them at once.
    """
    problems: list[str] = []
    modules = _modules(folder, problems)
    pooling_folder = next((path for kind, path in modules or () if kind == "Pooling"), None)
    if modules is None:
        pooling_folder = _POOLING_FOLDER if os.path.lexists(folder / _POOLING_FOLDER / "config.json") else None
    prompts, default_prompt_name = _prompts(folder, problems)
    files = SentenceFiles(
        pooling=None if pooling_folder is None else _pooling(folder / pooling_folder / "config.json", problems),
        max_length=_max_length(folder, problems),
        prompts=prompts,
        default_prompt_name=default_prompt_name,
    )
    if problems:
        raise CheckpointError(folder, problems)
    return files


def _modules(folder: Path, problems: list[str]) -> list[tuple[str, str]] | None:
    """Kind and folder of each module, in order; None without `modules.json`."""
    path = folder / "modules.json"
    if not os.path.lexists(path):
        return None
    try:
        listed = read_json(path)
    except ValueError as error:
        problems.append(str(error))
        return []
    if not isinstance(listed, list) or not all(_is_module(module) for module in listed):
        problems.append(f"{path.name}: must be a list of objects with a type and a path, both text")
        return []
    modules = [(_kind(module["type"]), module["path"]) for module in listed]
    problems += _chain_problems(modules)
    return [(kind, place) for kind, place in modules if place == "" or is_plain_name(place)]


def _is_module(module: object) -> bool:
    return isinstance(module, dict) and all(isinstance(module.get(name), str) for name in ("type", "path"))


def _kind(type_name: str) -> str:
    """The class of a module; in full if it is not the library's own, which then needs code from the folder."""
    library, _, rest = type_name.partition(".")
    return rest.rpartition(".")[2] if library == "sentence_transformers" else type_name


def _chain_problems(modules: list[tuple[str, str]]) -> Iterator[str]:
    kinds = [kind for kind, _ in modules]
    if kinds not in _CHAINS:
        allowed = "Transformer, then Pooling, then Normalize, the last two optional"
        yield f"modules.json: {shown(' > '.join(kinds))} is not supported; allowed is {allowed}"
    for kind, place in modules:
        if place and not is_plain_name(place):
            yield f"modules.json: path {place!r} must be a plain name of a folder in this one"
        elif kind == "Transformer" and place:
            yield f"modules.json: the transformer's files are in {place!r}; only the folder itself is supported"


def _pooling(path: Path, problems: list[str]) -> Pooling | None:
    try:
        values = read_json_object(path)
    except ValueError as error:
        problems.append(f"{path.parent.name}/{error}")
        return None
    kinds = _pooling_kinds(values)
    where = f"{path.parent.name}/{path.name}"
    if not values.get("include_prompt", True):
        problems.append(f"{where}: include_prompt false, leaving prompts out of the pooling, is not supported")
    if len(kinds) == 1 and kinds[0] in _POOLING_KINDS:
        return _POOLING_KINDS[kinds[0]]
    asked = shown(" and ".join(kinds))
    problems.append(f"{where}: pooling by {asked} is not supported; allowed is one of {', '.join(_POOLING_KINDS)}")
    return None


def _pooling_kinds(values: Mapping[str, Any]) -> list[str]:
    """The new spelling is `pooling_mode`, the old one a flag for each kind; with none set, the library takes mean."""
    if "pooling_mode" in values:
        kinds = values["pooling_mode"]
        return list(map(str, kinds)) if isinstance(kinds, list) else [str(kinds)]
    unknown = {name: name for name in values if name.startswith("pooling_mode_") and name not in _POOLING_FLAGS}
    return [kind for flag, kind in (_POOLING_FLAGS | unknown).items() if values.get(flag)] or ["mean"]


def _max_length(folder: Path, problems: list[str]) -> int | None:
    path = folder / "sentence_bert_config.json"
    values = _optional_object(path, problems)
    if values.get("do_lower_case") and not _lower_cases(folder, problems):
        problems.append(f"{path.name}: do_lower_case is true, but the tokenizer's (tokenizer_config.json) is false")
    length = values.get("max_seq_length")
    if length is None or (isinstance(length, int) and not isinstance(length, bool) and length > 2):
        return length
    problems.append(
        f"{path.name}: max_seq_length {length!r} must be null or an integer above 2, [CLS] and [SEP] counted"
    )
    return None


def _lower_cases(folder: Path, problems: list[str]) -> bool:
    return bool(_optional_object(folder / "tokenizer_config.json", problems).get("do_lower_case", True))


def _prompts(folder: Path, problems: list[str]) -> tuple[dict[str, str], str | None]:
    path = folder / "config_sentence_transformers.json"
    values = _optional_object(path, problems)
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(prompt, str) for prompt in prompts.values()):
        problems.append(f"{path.name}: prompts must be an object of names to texts")
        return {}, None
    if default is not None and (not isinstance(default, str) or default not in prompts):
        problems.append(f"{path.name}: default_prompt_name {default!r} must be null or the name of one of its prompts")
        return prompts, None
    return prompts, default


def _optional_object(path: Path, problems: list[str]) -> dict[str, Any]:
    if not os.path.lexists(path):
        return {}
    try:
        return read_json_object(path)
    except ValueError as error:
        problems.append(str(error))
        return {}
