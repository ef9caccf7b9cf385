"""Which files of a repository make a checkpoint, and getting these and no others.

The small files come first and are checked: a model of another kind is refused before its weights are downloaded.
"""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from bert_core import CheckpointError
from bert_core.checkpoint_contents import read_config
from bert_core.tokenizer_files import read_tokenizer_files
from bert_core.weight_layout import weight_layout
from service.checkpoints import hub
from service.checkpoints.hub import Snapshot
from service.engine.sentence_files import read_sentence_files

logger = logging.getLogger(__name__)

SMALL_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "[0-9]*_*/config.json",  # 1_Pooling
)

# The second only where there is none of the first; each may be in shards, which its index lists.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def fetch_checkpoint(repository: str, *, revision: str | None, offline: bool) -> Snapshot:
    """Bring a checkpoint into the hub's cache.

    Raises:
        HubError: it cannot be had.
        CheckpointError: its small files say that it cannot be served; names everything that is wrong with them.
    """
    logger.info("looking for %s on the hub", repository)
    snapshot = hub.fetch(repository, revision=revision, patterns=SMALL_FILES, offline=offline)
    if problems := list(dict.fromkeys(_small_file_problems(snapshot.folder))):
        raise CheckpointError(Path(repository), problems)

    def fetch(*names: str) -> None:
        patterns = (*SMALL_FILES, *map(glob.escape, names))
        hub.fetch(repository, revision=snapshot.revision, patterns=patterns, offline=offline)

    for name in WEIGHTS:
        fetch(name, _index(name))
        if (snapshot.folder / name).exists():
            break
        if (snapshot.folder / _index(name)).exists():
            fetch(*set((weight_layout(snapshot.folder).listed or {}).values()))
            break
    logger.info("%s is in the hub's cache at revision %s", repository, snapshot.revision)
    return snapshot


def needed_files(folder: Path) -> list[Path]:
    """Those files of a folder that a checkpoint is loaded from, relative to it."""
    layout = weight_layout(folder)
    names = {file.name for file in layout.files}
    if layout.listed is not None:
        names.add(next(_index(name) for name in WEIGHTS if (folder / _index(name)).exists()))
    patterns = (*SMALL_FILES, *map(glob.escape, names))
    found = (path for pattern in patterns for path in folder.glob(pattern) if path.is_file())
    return sorted(path.relative_to(folder) for path in found)


def _index(name: str) -> str:
    return f"{name}.index.json"


def _small_file_problems(folder: Path) -> Iterator[str]:
    yield from read_config(folder)[1]
    readers: tuple[Callable[[Path], object], ...] = (read_tokenizer_files, read_sentence_files)
    for read in readers:
        try:
            read(folder)
        except CheckpointError as error:
            yield from error.problems
