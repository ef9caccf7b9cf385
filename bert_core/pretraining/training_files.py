"""What a run writes: checkpoints that appear whole or not at all, a log, and a picture of it.

OUTPUT/checkpoint-000500/   a checkpoint folder, and training_state.pt to go on from
OUTPUT/config.json …        the model at the end, a checkpoint folder too
OUTPUT/log.jsonl            a line now and then
OUTPUT/curve.svg            the log as a picture
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bert_core.checkpoint import save_pretrained
from bert_core.model import BertForPreTraining
from bert_core.pretraining.curve import curve
from bert_core.pretraining.starting_model import copy_companions, write_whole

STATE = "training_state.pt"
STATE_KEYS = frozenset({"step", "tokens", "seconds", "position", "optimizer", "options", "vocabulary"})
LOG = "log.jsonl"
CURVE = "curve.svg"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class TrainingError(RuntimeError):
    """A run that cannot go on; the message says why and what to do."""


class TrainingFiles:
    """The output folder of a run.

    Args:
        folder: made if it is not there.
        companions: the folder whose tokenizer's files go into every checkpoint.
    """

    def __init__(self, folder: Path, *, companions: Path) -> None:
        self.folder = folder
        self._companions = companions
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, model: BertForPreTraining, *, step: int, state: Mapping[str, Any], keep: int) -> Path:
        """A checkpoint to serve and to go on from; it is renamed into its place when it is complete.

        Args:
            keep: how many older ones stay.

        Raises:
            OSError: there is no room for it, or it cannot be written for another reason; nothing of it stays.
        """
        target = self.folder / f"checkpoint-{step:06d}"
        self._remove_unfinished()
        new = self.folder / f".{target.name}.new"
        try:
            new.mkdir()
            save_pretrained(model, new)
            copy_companions(self._companions, new)
            _write_state(state, new / STATE)
            _flush(new)
        except BaseException:
            self._remove_unfinished()
            raise
        shutil.rmtree(target, ignore_errors=True)
        os.replace(new, target)
        _flush(self.folder)
        for old in sorted(checkpoints(self.folder), key=step_of)[: -keep - 1]:
            shutil.rmtree(old)
        return target

    def _remove_unfinished(self) -> None:
        for unfinished in self.folder.glob(".checkpoint-*.new"):
            shutil.rmtree(unfinished)

    def save_final(self, model: BertForPreTraining) -> None:
        """The model into the folder itself."""
        copy_companions(self._companions, self.folder)
        save_pretrained(model, self.folder)

    def log(self, values: Mapping[str, Any]) -> None:
        """One line."""
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def forget_log_after(self, step: int) -> None:
        """Drop what a run wrote that was ended after its last checkpoint; at step 0, all."""
        path = self.folder / LOG
        kept = [entry for entry in self.entries() if entry["step"] <= step and step]
        write_whole(path, "".join(json.dumps(entry) + "\n" for entry in kept).encode())

    def entries(self) -> list[dict[str, Any]]:
        """The log; a line that was cut off by a kill is left out."""
        path = self.folder / LOG
        found = []
        for line in path.read_text("utf-8").splitlines() if path.exists() else []:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return found

    def draw(self) -> None:
        """The picture of the log so far."""
        (self.folder / CURVE).write_text(curve(self.entries()), "utf-8")


def _write_state(state: Mapping[str, Any], path: Path) -> None:
    try:
        torch.save(dict(state), path)
    except RuntimeError as error:  # what PyTorch makes of a full disk
        raise OSError(errno.EIO, "cannot be written whole; is the disk full?", str(path)) from error


def read_state(checkpoint: Path, *, device: torch.device) -> dict[str, Any]:
    """What `TrainingFiles.save` was given beside the model.

    Raises:
        TrainingError: it is missing or damaged.
    """
    try:
        state: object = torch.load(checkpoint / STATE, map_location=device, weights_only=True)
    except FileNotFoundError:
        fault = "is missing"
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        fault = "is damaged or cut short"
    else:
        if isinstance(state, dict) and state.keys() >= STATE_KEYS:
            return state
        fault = "is not that of a training run"
    raise TrainingError(
        f"{checkpoint / STATE}: {fault}; without this checkpoint's folder, the one before is gone on from"
    )


def _flush(folder: Path) -> None:
    """To the disk, so that a power cut after the renaming finds the files whole."""
    for path in (*folder.iterdir(), folder):
        if path.is_file() or path == folder:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def checkpoints(folder: Path) -> list[Path]:
    """Those of a run that are complete, in no order."""
    return [path for path in folder.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name)]


def step_of(checkpoint: Path) -> int:
    """After which step it was saved."""
    match = _CHECKPOINT.fullmatch(checkpoint.name)
    assert match is not None
    return int(match[1])


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest one of a run; None before the first."""
    return max(checkpoints(folder), key=step_of, default=None)
