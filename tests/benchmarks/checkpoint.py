"""The checkpoints that benchmarks serve: the shipped one, with room for the longest texts, and one of bert-base's size.

The sentence-transformers files of the shipped one cut texts of embeddings at 256 tokens. Some engines follow that and
some don't, so all are given the same weights with files that allow 512: everybody does the same work.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.benchmarks.environments import bench_home
from tests.benchmarks.texts import CHECKPOINT

LIMITS = "sentence_bert_config.json"


def full_length_checkpoint() -> Path:
    """A folder of links to the checkpoint's files, made if it is missing."""
    folder = bench_home() / "models" / CHECKPOINT.name
    folder.mkdir(parents=True, exist_ok=True)
    for path in CHECKPOINT.iterdir():
        link = folder / path.name
        if path.name != LIMITS and not link.is_symlink():
            link.symlink_to(path)
    config = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    limits = {"max_seq_length": config["max_position_embeddings"], "do_lower_case": False}
    (folder / LIMITS).write_text(json.dumps(limits), encoding="utf-8")
    return folder


def bert_base_checkpoint() -> Path:
    """A folder with a model of bert-base's shape, random weights and the shipped vocabulary; made if it is missing."""
    import torch

    from bert_core import BertConfig, BertForPreTraining, save_pretrained

    folder = bench_home() / "models" / "bert-base-at-random"
    if not (folder / "vocab.txt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        save_pretrained(BertForPreTraining(BertConfig()), folder)
        shutil.copyfile(CHECKPOINT / "vocab.txt", folder / "vocab.txt")
    return folder
