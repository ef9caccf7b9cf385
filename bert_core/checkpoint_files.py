"""What lies in a checkpoint folder, before any weights file is opened: which files hold weights, and what is wrong.

Nothing here raises for a bad folder. Faults are lines of text, so that all of them can be told at once.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAFETENSORS = ".safetensors"
PICKLE = ".bin"

_GIT_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_WEB_PAGES = (b"<!doctype html", b"<html")

_WITH_OLD_TRANSFORMERS = "convert it with transformers 4 (version 5 no longer can): "
_FOREIGN_WEIGHTS = {
    "*.h5": "TensorFlow (Keras) weights; "
    + _WITH_OLD_TRANSFORMERS
    + "BertForPreTraining.from_pretrained(folder, from_tf=True).save_pretrained(folder)",
    "*.ckpt.*": "a TensorFlow checkpoint of the original BERT; "
    + _WITH_OLD_TRANSFORMERS
    + "transformers.models.bert.convert_bert_original_tf_checkpoint_to_pytorch",
    "*.msgpack": "Flax weights; "
    + _WITH_OLD_TRANSFORMERS
    + "BertForPreTraining.from_pretrained(folder, from_flax=True).save_pretrained(folder)",
    "*.onnx": "an ONNX graph, which cannot be turned back; take the checkpoint that it was made from",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLayout:
    """The weights files of a folder.

    files: the files that are there and can be opened.
    listed: tensor name to file name by the index of a sharded checkpoint; None without one.
    passed_over: names of other weights files, which are not used.
    problems: why the folder's weights cannot be used, one line each.
    """

    files: tuple[Path, ...] = ()
    listed: Mapping[str, str] | None = None
    passed_over: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def shown(name: str) -> str:
    """A name from a file as it can be put into one line of a message."""
    return name if name.isprintable() and len(name) <= 200 else ascii(name[:200])


def shortened(names: Iterable[str], *, limit: int = 10) -> str:
    """Names in one line, with a count of those after the first ones."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(shown, names[:limit])) + more


def file_fault(path: Path) -> str | None:
    """Why a file cannot be what its name says, judged by its first bytes; None if nothing speaks against it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return f"{path.name}: is not a regular file"
        with path.open("rb") as file:
            beginning = file.read(64)
    except FileNotFoundError:
        dangling = path.is_symlink()
        return f"{path.name}: is a symbolic link to a file that is missing" if dangling else f"{path.name}: is missing"
    except OSError as error:
        return f"{path.name}: cannot be read: {error.strerror}"
    if not beginning:
        return f"{path.name}: is empty (0 bytes), as after a download or copy that did not finish"
    if beginning.startswith(_GIT_LFS_POINTER):
        return f"{path.name}: is a Git LFS pointer, not the file that it stands for; run `git lfs pull`"
    if beginning.lstrip().lower().startswith(_WEB_PAGES):
        return f"{path.name}: is a web page, as after a download that was answered by an error page"
    return None


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that must hold one JSON object.

    Raises:
        ValueError: it cannot be read, or holds something else; the message begins with the file's name.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path.name}: must hold a JSON object, holds {type(values).__name__}")
    return values


def read_json(path: Path) -> object:
    """Read a JSON file in UTF-8.

    Raises:
        ValueError: it cannot be read, or is not JSON; the message begins with the file's name.
    """
    if fault := file_fault(path):
        raise ValueError(fault)
    try:
        values: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name}: is not JSON in UTF-8: {error}") from None
    return values


def weight_layout(folder: Path) -> WeightLayout:
    """Find the weights of a folder: safetensors before pickles, one file before shards."""
    kinds = {f"model{SAFETENSORS}": SAFETENSORS, f"pytorch_model{PICKLE}": PICKLE}
    names = [name for single in kinds for name in (single, f"{single}.index.json") if os.path.lexists(folder / name)]
    if not names:
        return WeightLayout(problems=tuple(_no_weights(folder, wanted=kinds)))
    chosen, *passed_over = names
    listed = None
    if chosen in kinds:
        files, problems = _sound([folder / chosen])
    else:
        files, listed, problems = _shards(folder / chosen, suffix=kinds[chosen.removesuffix(".index.json")])
    return WeightLayout(files=tuple(files), listed=listed, passed_over=tuple(passed_over), problems=tuple(problems))


def _sound(files: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """The files that have no fault, and the faults of the others."""
    faults = {file: file_fault(file) for file in files}
    return [file for file, fault in faults.items() if not fault], [fault for fault in faults.values() if fault]


def _no_weights(folder: Path, *, wanted: Iterable[str]) -> Iterator[str]:
    yield f"no weights: none of {', '.join(wanted)} is here, nor an index of shards of one ({{name}}.index.json)"
    for pattern, what in _FOREIGN_WEIGHTS.items():
        if found := sorted(path.name for path in folder.glob(pattern)):
            yield f"{shortened(found, limit=3)}: {what}"


def _shards(index: Path, *, suffix: str) -> tuple[list[Path], dict[str, str], list[str]]:
    """The shards that an index names and that can be opened, the index itself, and what is wrong with them."""
    try:
        listed = read_json_object(index).get("weight_map")
    except ValueError as error:
        return [], {}, [str(error)]
    if not isinstance(listed, dict) or not listed or not all(isinstance(name, str) for name in listed.values()):
        return [], {}, [f"{index.name}: weight_map must be an object of tensor names to file names"]
    names = sorted(set(listed.values()))
    if strange := [name for name in names if not is_plain_name(name) or not name.endswith(suffix)]:
        rule = f"a shard must be a plain name of a {suffix} file in this folder"
        return [], listed, [f"{index.name}: {rule}, unlike {shortened(map(repr, strange))}"]
    files, faults = _sound(index.parent / name for name in names)
    return files, listed, faults


def is_plain_name(name: str) -> bool:
    """Whether a name from a file stays in its folder: no separators of any platform, no drive, no `..`."""
    return name not in ("", ".", "..") and not set(name) & set("/\\:\0")
