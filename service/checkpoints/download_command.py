"""`bert-service download REPOSITORY`: a checkpoint from the hub to a folder, whole and checked, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import Any

from service.checkpoints.hub import HubError, Snapshot, is_repository_name
from service.checkpoints.interruptible import in_daemon_thread, interrupted_by_signals
from service.exit_codes import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS, EXIT_USAGE
from service.settings import DEFAULT_MODEL


def add_flags(parser: ArgumentParser) -> None:
    """Give `parser` the flags of the command."""
    parser.add_argument("repository", metavar="REPO", help="name on the hub, such as google-bert/bert-base-uncased")
    parser.add_argument("--revision", help="branch, tag or commit (default: the main branch)")
    parser.add_argument("--to", metavar="FOLDER", help="folder to make (default: weights/ and the repository's name)")
    parser.add_argument("--offline", action="store_true", help="take all from the hub's cache on this machine")


def run(given: dict[str, Any]) -> int:
    """Run the command with parsed arguments; returns its exit code."""
    repository = given["repository"]
    if not is_repository_name(repository):
        return _fail(f"REPO is {repository!r}: must be a name on the hub, such as org/name", code=EXIT_USAGE)
    target = Path(given["to"] or DEFAULT_MODEL.parent / repository.rpartition("/")[2])
    if os.path.lexists(target):
        return _fail(f"{target} exists already: remove it, or name another folder by --to", code=EXIT_FAILURE)
    # Imported here so that faults in the command line are told without waiting for torch.
    from bert_core import CheckpointError

    try:
        with interrupted_by_signals():
            _download(repository, revision=given["revision"], offline=given["offline"], target=target)
    except (HubError, CheckpointError) as error:
        return _fail(str(error), code=EXIT_FAILURE)
    except OSError as error:
        return _fail(f"cannot write {error.filename or target}: {error.strerror}", code=EXIT_FAILURE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_SUCCESS


def _download(repository: str, *, revision: str | None, offline: bool, target: Path) -> None:
    from service.checkpoints.fetching import fetch_checkpoint

    snapshot = in_daemon_thread(partial(fetch_checkpoint, repository, revision=revision, offline=offline))
    _install(snapshot, repository=repository, target=target)
    print(f"{target}: {repository} at {snapshot.revision}")
    print(f"bert-service serve --model-id {target} --revision {snapshot.revision}")


def _install(snapshot: Snapshot, *, repository: str, target: Path) -> None:
    """Copy a checkpoint to a folder that appears only when everything is in it and has been loaded once.

    Raises:
        CheckpointError: it cannot be served.
        OSError: it cannot be written.
    """
    from bert_core import CheckpointError
    from service.checkpoints.fetching import needed_files

    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.unfinished")
    try:
        for file in needed_files(snapshot.folder):
            (unfinished / file.parent).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(snapshot.folder / file, unfinished / file)
        _check(unfinished)
        unfinished.rename(target)
    except CheckpointError as error:
        raise CheckpointError(Path(repository), error.problems) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check(folder: Path) -> None:
    import torch

    from service.engine.loading import load_parts, model_info

    model, tokenizer, sentence_files = load_parts(folder, device=torch.device("cpu"), dtype=torch.float32)
    model_info(
        model, tokenizer=tokenizer, sentence_files=sentence_files, model_id=str(folder), revision=None, pooling=None
    )


def _fail(message: str, *, code: int) -> int:
    print(f"bert-service download: {message}", file=sys.stderr)
    return code
