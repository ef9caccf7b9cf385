"""Checkpoint folders in Hugging Face layout to models, and back.

Loading is strict. A head that the files do not hold does not exist in the model; of everything else, nothing may be
missing, nothing too much, and no shape wrong. The values go one tensor at a time straight to their place, device and
dtype: at most, the model and one tensor are in memory.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets
import shutil
from os import PathLike
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from bert_core.checkpoint_contents import CheckpointContents, inspect_folder
from bert_core.checkpoint_files import CheckpointError, shown, shown_value
from bert_core.empty_model import empty_model
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining
from bert_core.summary import is_prepacked
from bert_core.weight_files import read_tensors
from bert_core.weight_names import DECODER_BIAS, PREDICTION_BIAS, canonical_targets

__all__ = ["CheckpointError", "load_pretrained", "save_pretrained"]

_FLOATING = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

# (mlm, nsp) to the class of transformers that has these heads.
_ARCHITECTURES = {
    (True, True): "BertForPreTraining",
    (True, False): "BertForMaskedLM",
    (False, True): "BertForNextSentencePrediction",
    (False, False): "BertModel",
}


def load_pretrained(
    folder: str | PathLike[str],
    *,
    device: str | torch.device = "cpu",
    dtype: torch.dtype | None = None,
) -> BertForPreTraining:
    """Load a model from a folder with `config.json` and weights, in evaluation mode.

    Weights are `model.safetensors`, else its shards, else `pytorch_model.bin`, else its shards; pickles are read by
    `weights_only=True`. `model.heads` says which heads the files hold. Tensors that are tied may be stored or not.

    Args:
        folder: symbolic links in it are followed, as caches use them.
        device: where the parameters go.
        dtype: what the parameters become, whatever the file holds and `config.json` says; float32 if None.

    Raises:
        CheckpointError: whatever is wrong with the folder, all at once, before any weight is used.
        ValueError: a dtype that weights cannot have, or a device that is not there.
    """
    device, dtype = _usable(device), dtype or torch.float32
    if dtype not in _FLOATING:
        raise ValueError(f"dtype: {dtype} is not one of {', '.join(map(str, _FLOATING))}")
    path = Path(folder)
    contents, problems = inspect_folder(path)
    if contents is None:
        raise CheckpointError(path, problems)
    model = empty_model(contents.config, heads=contents.heads)
    _fill(model, contents=contents, device=device, dtype=dtype)
    model.tie_weights()
    model.reset_buffers(device=device, dtype=dtype)
    return model.eval()


def _usable(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:  # what PyTorch raises differs from backend to backend
        (reason, *_) = str(error).splitlines() or [type(error).__name__]
        raise ValueError(f"device: {shown_value(device)} cannot be used here: {shown(reason)}") from None


@torch.no_grad()
def _fill(model: BertForPreTraining, *, contents: CheckpointContents, device: torch.device, dtype: torch.dtype) -> None:
    targets = canonical_targets(contents.config, heads=contents.heads)
    target_of = {contents.sources[name]: target for name, target in targets.items()}
    for stored, values in read_tensors(target_of):
        target = target_of[stored]
        if model.get_parameter(target.parameter).is_meta:
            _allocate(model, target.parameter, device=device, dtype=dtype)
        target.part(model.get_parameter(target.parameter)).copy_(values)


def _allocate(model: nn.Module, name: str, *, device: torch.device, dtype: torch.dtype) -> None:
    module_name, _, attribute = name.rpartition(".")
    parameter = model.get_parameter(name)
    real = torch.empty(parameter.shape, device=device, dtype=dtype)
    setattr(model.get_submodule(module_name), attribute, nn.Parameter(real, requires_grad=parameter.requires_grad))


def save_pretrained(model: BertForPreTraining, folder: str | PathLike[str]) -> None:
    """Write `config.json` and `model.safetensors`, which `load_pretrained` reads back equal.

    `transformers` opens them with equal outputs, unless the model is of a kind that it does not have: then
    `model_type` is `bert_core`. Both files are written under other names first and then put in place. The
    tokenizer's files are not this function's.

    Raises:
        ValueError: the activation is a callable, which has no name to write; the model is prepacked, hence has no
            plain weights any more; or it is no `BertForPreTraining`.
        OSError: the folder cannot be written.
    """
    if not isinstance(model, BertForPreTraining):
        raise ValueError(f"model: a {type(model).__name__} is not a BertForPreTraining, which alone can be saved")
    if is_prepacked(model):
        raise ValueError("model: it is prepacked, so its weights are for inference alone; save it before `prepack`")
    path = Path(folder)
    tensors = _named_tensors(model)
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    extra = {name: value for name, value in model.config.extra.items() if name != "torch_dtype"}
    extra |= {"architectures": [_architecture(model.heads)], "dtype": dtype}
    config = dataclasses.replace(model.config, extra=extra)
    path.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    new_config, new_weights = path / f".config-{token}.json", path / f".model-{token}.safetensors"
    try:
        config.to_json_file(new_config)
        try:
            save_file(tensors, new_weights, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(errno.EIO, str(error), str(path / "model.safetensors")) from None
        # safetensors gives its files to their owner alone; a service often runs as somebody else.
        shutil.copymode(new_config, new_weights)
        os.replace(new_weights, path / "model.safetensors")
        os.replace(new_config, path / "config.json")
    finally:
        new_config.unlink(missing_ok=True)
        new_weights.unlink(missing_ok=True)


def _named_tensors(model: BertForPreTraining) -> dict[str, Tensor]:
    tensors = {
        name: target.part(model.get_parameter(target.parameter).detach()).contiguous()
        for name, target in canonical_targets(model.config, heads=model.heads).items()
    }
    if DECODER_BIAS in tensors:
        # Beside an untied decoder, versions 4 of transformers read the bias from here and 5 from there.
        tensors[PREDICTION_BIAS] = tensors[DECODER_BIAS].clone()
    return tensors


def _architecture(heads: Heads) -> str:
    return _ARCHITECTURES[heads.mlm, heads.nsp]
