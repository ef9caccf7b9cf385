"""Weights files: what tensors they hold, and reading these one at a time.

Formats: safetensors (https://github.com/huggingface/safetensors) and PyTorch's pickles, the latter only by
`weights_only=True`, which builds tensors and runs no code from the file.
"""

from __future__ import annotations

import itertools
import math
import pickle
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bert_core.budget import groups_within
from bert_core.checkpoint_files import shortened, shown
from bert_core.weight_layout import SAFETENSORS

_ZIP_MAGIC = b"PK\x03\x04"
_SAFETENSORS_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_WEIGHT_DTYPES = frozenset(_SAFETENSORS_DTYPES.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in a weights file.

    dtype: the name of its dtype, as the format calls it.
    is_weight: whether that is a dtype that weights can have, floating and of at least 16 bits.
    """

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    is_weight: bool
    num_bytes: int


def stored_tensors(file: Path) -> list[StoredTensor]:
    """The tensors of one file, without reading their values.

    A pickle that is not in zip format is read whole.

    Raises:
        ValueError: the file is damaged, or holds something else than tensors; the message begins with its name.
    """
    return _safetensors_header(file) if file.suffix == SAFETENSORS else _pickle_header(file)


def read_tensors(tensors: Iterable[StoredTensor]) -> Iterator[tuple[StoredTensor, Tensor]]:
    """Read tensors one at a time, on the CPU and in their own dtype; each is good only until the next is asked for.

    Files are mapped into memory, and a mapping keeps every page that was touched. So a file is opened again as soon
    as the pages of the largest tensor have been touched: never more than that is held. Only a pickle that is not in
    zip format is held whole.
    """
    tensors = sorted(tensors, key=lambda tensor: tensor.file)
    most_bytes = max((tensor.num_bytes for tensor in tensors), default=0)
    for file, held in itertools.groupby(tensors, key=lambda tensor: tensor.file):
        if file.suffix == SAFETENSORS:
            for part in groups_within(held, budget=most_bytes, cost=_num_bytes):
                with safe_open(file, framework="pt") as opened:
                    yield from ((tensor, opened.get_tensor(tensor.name)) for tensor in part)
        else:
            for part in groups_within(held, budget=most_bytes, cost=_num_bytes) if _is_zip(file) else [list(held)]:
                state = _load_pickle(file)
                yield from ((tensor, state[tensor.name]) for tensor in part)
                del state


def _num_bytes(tensor: StoredTensor) -> int:
    return tensor.num_bytes


def _safetensors_header(file: Path) -> list[StoredTensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            return [_safetensors_tensor(file, name, opened.get_slice(name)) for name in opened.offset_keys()]
    except (SafetensorError, OSError, MemoryError) as error:
        size = file.stat().st_size
        cause = f"the file is damaged or cut off after {size} bytes, or in another format"
        raise ValueError(
            f"{file.name}: is no whole safetensors file ({shown(str(error) or type(error).__name__)}); {cause}"
        ) from None


def _safetensors_tensor(file: Path, name: str, view: Any) -> StoredTensor:
    code: str = view.get_dtype()
    shape = tuple(view.get_shape())
    dtype = _SAFETENSORS_DTYPES.get(code)
    item_bytes = dtype.itemsize if dtype else 0
    return StoredTensor(
        file=file,
        name=name,
        shape=shape,
        dtype=code,
        is_weight=dtype is not None,
        num_bytes=math.prod(shape) * item_bytes,
    )


def _pickle_header(file: Path) -> list[StoredTensor]:
    return [
        StoredTensor(
            file=file,
            name=name,
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            is_weight=tensor.dtype in _WEIGHT_DTYPES,
            num_bytes=tensor.nbytes,
        )
        for name, tensor in _load_pickle(file).items()
    ]


def _is_zip(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC


def _load_pickle(file: Path) -> Mapping[str, Tensor]:
    """The tensors of a pickle by name; mapped into memory, not read, if it is in zip format."""
    is_zip = _is_zip(file)
    try:
        compressed = _compressed_part(file) if is_zip else None
        loaded: object = None if compressed else torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    except pickle.UnpicklingError:
        cause = "it is damaged, or holds objects that only code from the file could build; none was run"
        raise ValueError(f"{file.name}: is no pickle of tensors alone: {cause}") from None
    except Exception as error:  # A damaged or hostile pickle fails in whatever way its author chose.
        cause = f"the file is damaged or cut off after {file.stat().st_size} bytes"
        raise ValueError(f"{file.name}: cannot be read as a PyTorch file ({type(error).__name__}); {cause}") from None
    if compressed:
        raise ValueError(f"{file.name}: {shown(compressed)} in it is compressed, which PyTorch never does")
    return _tensors_of(loaded, file_name=file.name)


def _compressed_part(file: Path) -> str | None:
    """Its name: a few bytes of it may stand for gigabytes, which PyTorch would unpack."""
    with zipfile.ZipFile(file) as archive:
        return next((part.filename for part in archive.infolist() if part.compress_type != zipfile.ZIP_STORED), None)


def _tensors_of(loaded: object, *, file_name: str) -> Mapping[str, Tensor]:
    where = file_name
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        if others := [str(name) for name in loaded if name != "state_dict"]:
            advice = "save the state_dict alone"
            raise ValueError(
                f"{where}: a training checkpoint, with {shortened(others)} beside its state_dict; {advice}"
            )
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict):
        raise ValueError(f"{where}: must hold tensors by name, holds {type(loaded).__name__}")
    if strange := [str(name) for name, value in loaded.items() if not _is_plain(name, value)]:
        raise ValueError(f"{where}: must hold plain tensors by name and nothing else, unlike {shortened(strange)}")
    return loaded


def _is_plain(name: object, value: object) -> bool:
    """Whether this is a named, dense tensor whose values are really in the file."""
    if not isinstance(name, str) or not isinstance(value, Tensor):
        return False
    ordinary = type(value) in (Tensor, torch.nn.Parameter)
    if not ordinary or value.layout != torch.strided or value.device.type != "cpu":
        return False
    return value.nbytes <= value.untyped_storage().nbytes()  # else one number stands for many
