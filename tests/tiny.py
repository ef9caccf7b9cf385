"""Tiny models, vocabularies and batches that tests share. All sizes differ, so that a swapped axis fails."""

from __future__ import annotations

import dataclasses
import string
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.model import BertForPreTraining
from bert_core.packing import PackedTokens

ROWS, COLUMNS = 6, 13

TINY_CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=20,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=41,
    type_vocab_size=7,
    layer_norm_eps=1e-3,
)
"""Head width 5. The epsilon is large enough that a forgotten one shows."""

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TINY_VOCABULARY = (
    *SPECIAL_TOKENS,
    *string.ascii_lowercase,
    *(f"##{letter}" for letter in string.ascii_lowercase),
    *string.digits,
    *".,!?'-",
    *("the", "paris", "france", "is", "capital", "of", "in", "hello", "world", "apple", "tv"),
    *("how", "are", "you", "do", "like", "cookies", "them", "king", "queen"),
    *"北京是中国首",
)
"""99 pieces; any lower-case Latin word is covered, letter by letter."""


def tiny_config(**changes: Any) -> BertConfig:
    """`TINY_CONFIG` with some fields changed."""
    return dataclasses.replace(TINY_CONFIG, **changes)


def tiny_model(
    config: BertConfig = TINY_CONFIG, *, seed: int = 0, heads: Heads | None = None, dtype: torch.dtype = torch.float32
) -> BertForPreTraining:
    """A model in eval mode whose weights are random and large: biases, norms and the padding row too."""
    model = BertForPreTraining(config, heads=heads).eval()
    generator = torch.Generator().manual_seed(seed)
    norms = {id(norm.weight) for norm in model.modules() if isinstance(norm, nn.LayerNorm)}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + (id(parameter) in norms))
    model.to(dtype)
    model.reset_buffers(device=torch.device("cpu"), dtype=dtype)
    return model


def random_ids(config: BertConfig = TINY_CONFIG, *, seed: int = 0, shape: tuple[int, int] = (ROWS, COLUMNS)) -> Tensor:
    """Ids of the vocabulary without the padding id, int64 `[B, L]`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, config.vocab_size, shape, generator=generator)


def random_segments(
    config: BertConfig = TINY_CONFIG, *, seed: int = 0, shape: tuple[int, int] = (ROWS, COLUMNS)
) -> Tensor:
    """Segment ids, int64 `[B, L]`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.type_vocab_size, shape, generator=generator)


def random_packed(config: BertConfig = TINY_CONFIG, *, lengths: tuple[int, ...], seed: int = 0) -> PackedTokens:
    """Sequences of the given lengths with random ids and segments."""
    tokens = sum(lengths)
    return PackedTokens(
        ids_T=random_ids(config, seed=seed, shape=(1, tokens))[0],
        segments_T=random_segments(config, seed=seed, shape=(1, tokens))[0],
        positions_T=torch.cat([torch.arange(length) for length in lengths]),
        lengths=lengths,
    )


def masks() -> dict[str, Tensor | None]:
    """Attention masks `[ROWS, COLUMNS]` of every kind by name; each keeps a whole row and a short one."""
    right, left, holes = (torch.ones(ROWS, COLUMNS, dtype=torch.long) for _ in range(3))
    for row, padding in enumerate((0, 1, 6, 6, 12, 3)):
        right[row, COLUMNS - padding :] = 0
        left[row, :padding] = 0
    holes[1, 4] = holes[2, 3:8] = holes[3, 1::2] = holes[4, 1:] = holes[5, 12] = holes[5, 2] = 0
    return {"none": None, "right": right, "left": left, "holes": holes}


def write_tiny_vocabulary(folder: Path) -> Path:
    """Write `vocab.txt` with `TINY_VOCABULARY`, one piece a line, and return its path."""
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in TINY_VOCABULARY), encoding="utf-8")
    return path
