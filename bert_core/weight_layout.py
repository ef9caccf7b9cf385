"""Which files of a checkpoint folder hold its weights, before any of them is opened.

Nothing here raises for a bad folder: faults are lines of text, as in `checkpoint_files`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bert_core.checkpoint_files import file_fault, first_few, is_plain_name, read_json_object, shortened

SAFETENSORS = ".safetensors"
PICKLE = ".bin"

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
    files = [file for name in wanted for file in (name, f"{name}.index.json")]
    yield f"no weights: none of {', '.join(files)} is here"
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
    return files, listed, first_few(faults)
