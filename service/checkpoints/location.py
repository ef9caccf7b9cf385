"""Where the checkpoint is that `--model-id` names: in a folder, or in the hub's cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from service.checkpoints.hub import HubError, is_repository_name
from service.settings import DEFAULT_MODEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A checkpoint on this machine.

    folder: where it is.
    revision: of a repository the hash of its commit, of a folder what the caller says.
    """

    folder: Path
    revision: str | None


def locate(model_id: str, *, revision: str | None, offline: bool) -> Location:
    """Find a checkpoint, by downloading it if need be. A folder wins over a repository of the same name.

    Raises:
        HubError: it is no folder, and cannot be had from the hub either.
        CheckpointError: the repository holds something else.
    """
    folder = Path(model_id)
    if os.path.exists(folder) or not _may_be_a_repository(model_id):
        return Location(folder=folder, revision=revision)
    from service.checkpoints.fetching import fetch_checkpoint

    try:
        snapshot = fetch_checkpoint(model_id, revision=revision, offline=offline)
    except HubError as error:
        raise HubError(f"{model_id} is no folder here, and from the hub: {error}") from error
    return Location(folder=snapshot.folder, revision=snapshot.revision)


def _may_be_a_repository(model_id: str) -> bool:
    """A missing folder below `weights/`, such as the default one, is never looked for under a stranger's name."""
    return is_repository_name(model_id) and not Path(model_id).is_relative_to(DEFAULT_MODEL.parent)
