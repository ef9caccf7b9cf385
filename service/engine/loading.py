"""A checkpoint folder to the parts of an engine, and the facts about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

from bert_core import BertForPreTraining, BertTokenizer, load_pretrained
from bert_core.checkpoint import CheckpointError
from bert_core.config import BertConfig
from bert_core.precision import MEASURED_BOUNDS
from service.engine.sentence_files import SentenceFiles, read_sentence_files
from service.tasks import ModelInfo, Pooling

# [CLS], one token, [SEP].
SHORTEST_SEQUENCE = 3

LoadedT = TypeVar("LoadedT")


def load_parts(
    folder: Path, *, device: torch.device, dtype: torch.dtype
) -> tuple[BertForPreTraining, BertTokenizer, SentenceFiles]:
    """Model, tokenizer and sentence-transformers files of a checkpoint folder.

    Raises:
        CheckpointError: what is wrong with any of them, told together.
    """
    problems: list[str] = []

    def load(part: Callable[[], LoadedT]) -> LoadedT | None:
        try:
            return part()
        except CheckpointError as error:
            problems.extend(error.problems)
            return None

    sentence_files = load(lambda: read_sentence_files(folder))
    model = load(lambda: load_pretrained(folder, device=device, dtype=dtype))
    segments = BertConfig().pair_segment_ids if model is None else model.config.pair_segment_ids
    tokenizer = load(lambda: BertTokenizer.from_pretrained(folder, pair_segment_ids=segments))
    if model is None or tokenizer is None or sentence_files is None:
        raise CheckpointError(folder, dict.fromkeys(problems))
    # The reference path of PyTorch is for comparing; ours gives equal results and can do what batching needs.
    model.bert.drop_reference_attention()
    return model, tokenizer, sentence_files


def model_info(
    model: BertForPreTraining,
    *,
    tokenizer: BertTokenizer,
    sentence_files: SentenceFiles,
    model_id: str,
    revision: str | None,
    pooling: Pooling | None,
) -> ModelInfo:
    """What a loaded checkpoint can do.

    Raises:
        CheckpointError: it cannot do what is asked of it.
    """
    config, heads = model.config, model.heads
    pooling = pooling or sentence_files.pooling or ("pooler" if heads.pooler else "mean")
    longest = config.max_position_embeddings
    problems = []
    if pooling == "pooler" and not heads.pooler:
        problems.append("pooling: this checkpoint holds no pooler; use cls, mean or max")
    if longest < SHORTEST_SEQUENCE:
        problems.append(f"max_position_embeddings: {longest} leaves no room for a token between [CLS] and [SEP]")
    if problems:
        raise CheckpointError(Path(model_id), problems)
    parameter = next(model.parameters())
    return ModelInfo(
        model_id=model_id,
        revision=revision,
        device=str(parameter.device),
        dtype=str(parameter.dtype).removeprefix("torch."),
        capabilities={
            "fill_mask": heads.mlm,
            "next_sentence": heads.nsp and config.has_pair_segments and longest > SHORTEST_SEQUENCE,
            "embed": True,
            "embed_all": True,
            "embed_sparse": heads.mlm,
            "tokenize": True,
        },
        heads_missing=heads.missing,
        pooling=pooling,
        max_input_length=longest,
        max_embed_length=min(longest, sentence_files.max_length or longest),
        hidden_size=config.hidden_size,
        vocab_size=tokenizer.vocab_size,
        parameters=model.num_parameters(),
        mask_token=tokenizer.mask_token,
        attention=model.bert.attention_kernel(),
        least_embedding_cosine=MEASURED_BOUNDS[parameter.dtype].embedding_cosine,
        least_top1_agreement=MEASURED_BOUNDS[parameter.dtype].top1_agreement,
    )
