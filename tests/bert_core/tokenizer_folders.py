"""Checkpoint folders that hold a tokenizer and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tiny import SPECIAL_TOKENS

SHIPPED = Path(__file__).parents[2] / "weights" / "minilm-l6-bert-en"

SPECIAL = list(SPECIAL_TOKENS)


def write_vocabulary(folder: Path, *pieces: str) -> Path:
    """`vocab.txt` with the special tokens, ids 0 to 4, then `pieces`."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in [*SPECIAL, *pieces]), encoding="utf-8")
    return folder


def write_json(folder: Path, name: str, content: object) -> Path:
    """A JSON file of the folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def pipeline(*pieces: str, **changes: Any) -> dict[str, Any]:
    """The content of a `tokenizer.json` with the special tokens, ids 0 to 4, then `pieces`."""
    vocabulary = {piece: token_id for token_id, piece in enumerate([*SPECIAL, *pieces])}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token_id, "content": piece, "special": True, "normalized": False}
            | {"single_word": False, "lstrip": False, "rstrip": False}
            for token_id, piece in enumerate(SPECIAL)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    } | changes
