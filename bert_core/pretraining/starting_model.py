"""The model and the tokenizer that a run starts from: new ones, or those of a checkpoint folder."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from bert_core.checkpoint import load_pretrained
from bert_core.config import BertConfig
from bert_core.model import BertForPreTraining, BertModel
from bert_core.pretraining.instances import all_pieces
from bert_core.tokenizer import BertTokenizer

logger = logging.getLogger(__name__)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LEAST_VOCABULARY = len(SPECIAL_TOKENS) + 2
GREATEST_VOCABULARY = 1_000_000
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
    """folder: whose tokenizer's files are given on to the checkpoints that are made. new_heads: at random.

    teacher: the model whose sentence embeddings are kept, if any are and it is another one. `Trainer` freezes it.
    """

    model: BertForPreTraining
    tokenizer: BertTokenizer
    folder: Path
    new_heads: tuple[str, ...]
    teacher: BertModel | None = None


def check_config(config: BertConfig, *, max_length: int) -> None:
    """Whether a model can take pairs of so many tokens.

    Raises:
        ValueError: one line for every field that does not allow it.
    """
    problems = []
    if not config.has_pair_segments:
        rule = f"it must be above both pair_segment_ids, {config.pair_segment_ids}, to tell two sentences apart"
        problems.append(f"type_vocab_size: {config.type_vocab_size} is not allowed; {rule}")
    if max_length > config.max_position_embeddings:
        rule = f"it must be at most the model's max_position_embeddings, {config.max_position_embeddings}"
        problems.append(f"max_length: {max_length} is not allowed; {rule}")
    if problems:
        raise ValueError("\n".join(problems))


def from_checkpoint(folder: Path, *, device: torch.device, seed: int, dropout: float | None = None) -> StartingModel:
    """A checkpoint's model in float32, with all heads: those that it lacks are new.

    Args:
        dropout: in place of what its config says; from 0 to below 1.

    Raises:
        CheckpointError, TokenizerError: the folder cannot be used.
    """
    loaded = load_pretrained(folder)
    tokenizer = BertTokenizer.from_pretrained(folder, pair_segment_ids=loaded.config.pair_segment_ids)
    missing = loaded.heads.missing
    config = _with_dropout(loaded.config, dropout)
    model = loaded
    if missing or config != loaded.config:
        torch.manual_seed(seed)
        model = BertForPreTraining(config)
        model.load_state_dict(loaded.state_dict(), strict=False)
        model.tie_weights()
    return StartingModel(model.to(device), tokenizer, folder, missing)


def from_config(
    config: BertConfig, tokenizer_folder: Path, *, device: torch.device, seed: int, dropout: float | None = None
) -> StartingModel:
    """A new model of this shape for the vocabulary of a folder, which sets `vocab_size`.

    Args:
        dropout: in place of what the config says; from 0 to below 1.

    Raises:
        TokenizerError: the folder has no usable tokenizer.
    """
    tokenizer = BertTokenizer.from_pretrained(tokenizer_folder, pair_segment_ids=config.pair_segment_ids)
    torch.manual_seed(seed)
    config = _with_dropout(config, dropout)
    model = BertForPreTraining(replace(config, vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id))
    return StartingModel(model.to(device), tokenizer, tokenizer_folder, model.heads.present)


def with_teacher(start: StartingModel, folder: Path, *, max_length: int) -> StartingModel:
    """The same with a checkpoint's encoder as teacher, on the model's device.

    Raises:
        CheckpointError, TokenizerError: the folder cannot be used.
        ValueError: it does not read such pairs as the model does, or its vectors have another width.
    """
    teacher = load_pretrained(folder, device=next(start.model.parameters()).device).bert
    tokenizer = BertTokenizer.from_pretrained(folder)
    ours, theirs = start.model.config, teacher.config
    problems = []
    if all_pieces(tokenizer) != all_pieces(start.tokenizer):
        problems.append("its vocabulary is not that of the model that is trained; it must be the same")
    rules = {
        "lower-casing": (tokenizer.lowercase, start.tokenizer.lowercase),
        "pair_segment_ids": (theirs.pair_segment_ids, ours.pair_segment_ids),
        "hidden_size": (theirs.hidden_size, ours.hidden_size),
    }
    problems += [
        f"{name}: {value} is not allowed; it must be {wanted}, as of the model that is trained"
        for name, (value, wanted) in rules.items()
        if value != wanted
    ]
    try:
        check_config(theirs, max_length=max_length)
    except ValueError as error:
        problems += str(error).splitlines()
    if problems:
        raise ValueError("\n".join(f"{folder}: {problem}" for problem in problems))
    return replace(start, teacher=teacher)


def _with_dropout(config: BertConfig, dropout: float | None) -> BertConfig:
    if dropout is None:
        return config
    return replace(config, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)


def train_vocabulary(texts: Iterable[str], folder: Path, *, size: int, lowercase: bool) -> None:
    """Learn WordPiece from texts, and write `vocab.txt` and `tokenizer_config.json` into a folder.

    The special tokens come first: `[PAD] [UNK] [CLS] [SEP] [MASK]` are 0 to 4. Fewer pieces than `size` where the texts
    have no more; where they have more kinds of characters, the rarest are unknown.

    Raises:
        ValueError: `size` is not from `LEAST_VOCABULARY` to `GREATEST_VOCABULARY`.
    """
    check_vocabulary_size(size)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        # Each character is a piece at the beginning of a word and another one within.
        limit_alphabet=(size - len(SPECIAL_TOKENS)) // 2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = tokenizer.get_vocab()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}
    write_whole(folder / "tokenizer_config.json", (json.dumps(settings, indent=2) + "\n").encode())
    pieces = "".join(f"{token}\n" for token in sorted(ids, key=ids.__getitem__))
    write_whole(folder / "vocab.txt", pieces.encode())


def check_vocabulary_size(size: int) -> None:
    """Whether a vocabulary of so many pieces can be learned.

    Raises:
        ValueError: it cannot.
    """
    if not LEAST_VOCABULARY <= size <= GREATEST_VOCABULARY:
        rule = f"it must be from {LEAST_VOCABULARY} to {GREATEST_VOCABULARY:,}"
        raise ValueError(f"vocabulary_size: {size} is not allowed; {rule}")


def copy_companions(source: Path, target: Path) -> None:
    """Of a checkpoint folder, what goes on to one that was made from it: the tokenizer and how vectors are made."""
    if source.resolve() == target.resolve():
        return
    for name in (*TOKENIZER_FILES, *SENTENCE_FILES):
        if (source / name).is_file():
            write_whole(target / name, (source / name).read_bytes())
    for settings in source.glob("[0-9]*_*/config.json"):
        (target / settings.parent.name).mkdir(exist_ok=True)
        write_whole(target / settings.parent.name / settings.name, settings.read_bytes())


def write_whole(path: Path, content: bytes) -> None:
    """A file that is there with all its content, or as it was before.

    Raises:
        OSError: it cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(content)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
