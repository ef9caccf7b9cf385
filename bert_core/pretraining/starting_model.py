"""The model and the tokenizer that a run starts from: new ones, or those of a checkpoint folder."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bert_core.checkpoint import load_pretrained
from bert_core.config import BertConfig
from bert_core.model import BertForPreTraining
from bert_core.tokenizer import BertTokenizer

logger = logging.getLogger(__name__)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TOKENIZER_FILES = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
# Of sentence-transformers, which says how vectors are made of the states.
SENTENCE_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")


@dataclass(frozen=True, slots=True, eq=False)
class StartingModel:
    """folder: whose tokenizer's files are given on to the checkpoints that are made. new_heads: at random."""

    model: BertForPreTraining
    tokenizer: BertTokenizer
    folder: Path
    new_heads: tuple[str, ...]


def from_checkpoint(folder: Path, *, device: torch.device) -> StartingModel:
    """A checkpoint's model in float32, with all heads: those that it lacks are new.

    Raises:
        CheckpointError, TokenizerError: the folder cannot be used.
    """
    loaded = load_pretrained(folder)
    tokenizer = BertTokenizer.from_pretrained(folder, pair_segment_ids=loaded.config.pair_segment_ids)
    missing = loaded.heads.missing
    model = loaded
    if missing:
        model = BertForPreTraining(loaded.config)
        model.load_state_dict(loaded.state_dict(), strict=False)
        model.tie_weights()
    return StartingModel(model.to(device), tokenizer, folder, missing)


def from_config(config: BertConfig, tokenizer_folder: Path, *, device: torch.device, seed: int) -> StartingModel:
    """A new model of this shape for the vocabulary of a folder, which sets `vocab_size`.

    Raises:
        TokenizerError: the folder has no usable tokenizer.
    """
    tokenizer = BertTokenizer.from_pretrained(tokenizer_folder, pair_segment_ids=config.pair_segment_ids)
    torch.manual_seed(seed)
    model = BertForPreTraining(replace(config, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id))
    return StartingModel(model.to(device), tokenizer, tokenizer_folder, model.heads.present)


def train_vocabulary(texts: Iterable[str], folder: Path, *, size: int, lowercase: bool) -> None:
    """Learn WordPiece from texts, and write `vocab.txt` and `tokenizer_config.json` into a folder.

    The special tokens come first: `[PAD] [UNK] [CLS] [SEP] [MASK]` are 0 to 4. Fewer pieces than `size` where the texts
    have no more.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = tokenizer.get_vocab()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in sorted(ids, key=ids.__getitem__)), "utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def copy_companions(source: Path, target: Path) -> None:
    """Of a checkpoint folder, what goes on to one that was made from it: the tokenizer and how vectors are made."""
    for name in (*TOKENIZER_FILES, *SENTENCE_FILES):
        if (source / name).is_file() and source != target:
            shutil.copyfile(source / name, target / name)
    for settings in source.glob("[0-9]*_*/config.json"):
        (target / settings.parent.name).mkdir(exist_ok=True)
        if source != target:
            shutil.copyfile(settings, target / settings.parent.name / settings.name)
