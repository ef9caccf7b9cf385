"""One description of a BERT tokenizer, whatever files it came from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bert_core.checkpoint_files import CheckpointError, shown

BERT_PRE_TOKENIZER = {"type": "BertPreTokenizer"}


class TokenizerError(CheckpointError):
    """A folder that makes no tokenizer, with everything that is wrong with it."""

    _VERDICT = "not a BERT tokenizer that can be loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerDescription:
    """What `tokenizer.json` would hold, had the folder a complete one.

    folder: where it was read from.
    token_ids: piece to id, added tokens included.
    tokens: id to piece; of a piece that `vocab.txt` lists twice, both ids are here and the later one in `token_ids`.
    special_tokens: `cls_token`, `sep_token`, `mask_token`, `pad_token`, `unk_token` to the piece.
    added_tokens: tokens matched before the text is split.
    normalizer, pre_tokenizer, model: as in `tokenizer.json`, the model without its vocabulary.
    """

    folder: Path
    token_ids: dict[str, int]
    tokens: dict[int, str]
    special_tokens: dict[str, str]
    added_tokens: list[dict[str, Any]]
    normalizer: dict[str, Any]
    pre_tokenizer: dict[str, Any]
    model: dict[str, Any]

    @property
    def is_bert_pipeline(self) -> bool:
        """Whether text is cleaned and split as in BERT; a `tokenizer.json` may say otherwise."""
        return self.normalizer.get("type") == "BertNormalizer" and self.pre_tokenizer == BERT_PRE_TOKENIZER

    @property
    def split_chinese(self) -> bool:
        """Whether each Chinese character is a word."""
        return bool(self.normalizer.get("handle_chinese_chars"))

    @property
    def lowercase(self) -> bool | None:
        """Whether text is lower-cased; None where the normaliser is not BERT's."""
        return self.normalizer.get("lowercase")

    def build(self) -> Tokenizer:
        """The library's tokenizer for it, without truncation, padding or post-processing.

        Raises:
            TokenizerError: `tokenizer.json` holds something that the library does not know.
        """
        description = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self.added_tokens,
            "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer,
            "post_processor": None,
            "decoder": {"type": "WordPiece", "prefix": self.model["continuing_subword_prefix"], "cleanup": True},
            "model": {**self.model, "vocab": self.token_ids},
        }
        try:
            return Tokenizer.from_str(json.dumps(description))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises nothing narrower, and its panics are no `Exception`
            raise TokenizerError(self.folder, [f"tokenizer.json: {shown(str(error))}"]) from error
