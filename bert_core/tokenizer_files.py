"""The files of a checkpoint folder that make its tokenizer, checked and merged into one description."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bert_core.added_tokens import added_token, content, listed_tokens
from bert_core.checkpoint_files import (
    MAX_JSON_BYTES,
    MAX_VOCABULARY_BYTES,
    first_few,
    folder_fault,
    read_json_object,
    shown,
    shown_value,
)
from bert_core.tokenizer_description import BERT_PRE_TOKENIZER, TokenizerDescription, TokenizerError
from bert_core.vocabulary_files import Vocabulary, id_of_key

logger = logging.getLogger(__name__)

_SPECIAL_TOKENS = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
}
_OTHER_SPECIAL_TOKENS = ("bos_token", "eos_token", "additional_special_tokens", "extra_special_tokens")
_BERT_NORMALIZER: dict[str, Any] = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
_CONFIG_FLAGS = {
    "do_lower_case": "lowercase",
    "tokenize_chinese_chars": "handle_chinese_chars",
    "strip_accents": "strip_accents",
}
# Classes that read vocab.txt as BERT does. Others (BertJapaneseTokenizer …) cut words by means of their own.
_VOCAB_TXT_CLASSES = frozenset(
    f"{name}Tokenizer"
    for name in ("Bert", "BertLegacy", "ConvBert", "DistilBert", "Electra", "LayoutLM", "MobileBert", "PreTrained")
)


def read_tokenizer_files(folder: str | os.PathLike[str], *, lowercase: bool | None = None) -> TokenizerDescription:
    """Read a folder in Hugging Face layout. `lowercase` wins over what its files say.

    Raises:
        TokenizerError: names everything that is wrong.
    """
    folder = Path(folder)
    if fault := folder_fault(folder):
        raise TokenizerError(folder, [fault])
    reader = _Reader(folder)
    description = reader.description(lowercase=lowercase)
    if reader.problems:
        raise TokenizerError(folder, reader.problems)
    return description


class _Reader:
    """One reading of one folder; gathers problems rather than stop at the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []
        # Each is read by older and by newer versions of transformers; the newer file has the last word.
        self.config = self._json("special_tokens_map.json") | self._json("tokenizer_config.json")
        self.pipeline = self._json("tokenizer.json", max_bytes=MAX_VOCABULARY_BYTES)
        self.model = self._object(self.pipeline, "model", name="tokenizer.json")
        self.vocabulary = self._vocabulary()

    def description(self, *, lowercase: bool | None) -> TokenizerDescription:
        added_tokens = self._added_tokens()
        if problem := self.vocabulary.gap_problem():
            self.problems.append(problem)
        special_tokens = self._special_tokens()
        for token in (*special_tokens.values(), *self._other_special_tokens()):
            if (token_id := self.vocabulary.token_ids.get(token)) is not None:
                # Matched in the raw text wherever it stands, whatever flags a file gives it.
                added_tokens[token] = added_token({"content": token, "special": True}, token_id=token_id)
        return TokenizerDescription(
            folder=self.folder,
            token_ids=self.vocabulary.token_ids,
            tokens=self.vocabulary.tokens,
            special_tokens=special_tokens,
            added_tokens=list(added_tokens.values()),
            normalizer=self._normalizer(lowercase=lowercase),
            pre_tokenizer=self._object(self.pipeline, "pre_tokenizer", name="tokenizer.json") or BERT_PRE_TOKENIZER,
            model={
                "type": "WordPiece",
                "unk_token": special_tokens["unk_token"],
                "continuing_subword_prefix": self.model.get("continuing_subword_prefix", "##"),
                "max_input_chars_per_word": self.model.get("max_input_chars_per_word", 100),
            },
        )

    def _vocabulary(self) -> Vocabulary:
        has_pipeline, has_list = (os.path.lexists(self.folder / name) for name in ("tokenizer.json", "vocab.txt"))
        listed = self._vocab_txt() if has_list else Vocabulary()
        if not has_pipeline:
            if not has_list:
                self.problems.append("tokenizer.json and vocab.txt are missing; one of them must be there")
            self._check_class()
            return listed
        vocabulary = Vocabulary()
        pieces = self._object(self.model, "vocab", name="tokenizer.json")
        # Old files do not name the kind; only WordPiece has this setting.
        kind = self.model.get("type", "WordPiece" if "max_input_chars_per_word" in self.model else None)
        if self.model and kind != "WordPiece":
            self.problems.append(f"tokenizer.json: model.type is {shown_value(kind)}; BERT's is 'WordPiece'")
        else:
            self._note("tokenizer.json", vocabulary.add(pieces.items()))
            self._note("vocab.txt", vocabulary.contradictions(listed.token_ids))
        return vocabulary

    def _vocab_txt(self) -> Vocabulary:
        try:
            return Vocabulary.from_vocab_txt(self.folder / "vocab.txt")
        except ValueError as error:
            self.problems.append(str(error))
            return Vocabulary()

    def _check_class(self) -> None:
        name = str(self.config.get("tokenizer_class") or "BertTokenizer")
        if name.removesuffix("Fast") not in _VOCAB_TXT_CLASSES:
            self.problems.append(
                f"tokenizer_config.json: tokenizer_class is {shown(name)}, which does not work as BertTokenizer"
            )

    def _added_tokens(self) -> dict[str, dict[str, Any]]:
        """Content to entry. Their ids join the vocabulary."""
        by_id = self._object(self.config, "added_tokens_decoder", name="tokenizer_config.json").items()
        pipeline = listed_tokens(self.pipeline.get("added_tokens"))
        sources: dict[str, list[tuple[Any, Any]]] = {
            "added_tokens.json": [(token_id, token) for token, token_id in self._json("added_tokens.json").items()],
            "tokenizer.json": [(token.get("id") if isinstance(token, dict) else None, token) for token in pipeline],
            "tokenizer_config.json": [(id_of_key(key), token) for key, token in by_id],
        }
        entries: dict[str, dict[str, Any]] = {}
        for name, tokens in sources.items():
            if not all(content(token) for _, token in tokens):
                self.problems.append(f"{name}: an added token has no content")
            self._note(name, self.vocabulary.add((content(token), token_id) for token_id, token in tokens))
            entries |= {content(token): added_token(token, token_id=token_id) for token_id, token in tokens}
        return entries

    def _special_tokens(self) -> dict[str, str]:
        named = {"unk_token": self.model.get("unk_token")} | {
            role: token for role, token in self.config.items() if token
        }
        special_tokens = {role: content(named.get(role) or default) for role, default in _SPECIAL_TOKENS.items()}
        if self.problems and not self.vocabulary.token_ids:
            return special_tokens
        for role, token in special_tokens.items():
            if token not in self.vocabulary.token_ids:
                self.problems.append(f"{role} is {shown_value(token)}, which is not in the vocabulary")
            elif role != "mask_token" and token == special_tokens["mask_token"]:
                self.problems.append(f"{role} and mask_token are both {shown_value(token)}")
        return special_tokens

    def _other_special_tokens(self) -> list[str]:
        tokens = [content(token) for role in _OTHER_SPECIAL_TOKENS for token in listed_tokens(self.config.get(role))]
        unknown = [token for token in tokens if token not in self.vocabulary.token_ids]
        problems = [f"special token {shown_value(token)} is not in the vocabulary" for token in unknown]
        self._note("tokenizer_config.json", first_few(problems))
        return tokens

    def _normalizer(self, *, lowercase: bool | None) -> dict[str, Any]:
        found = self._object(self.pipeline, "normalizer", name="tokenizer.json")
        told = {}
        for key, flag in _CONFIG_FLAGS.items():
            value = self.config.get(key)
            if not isinstance(value, bool | None):
                self.problems.append(f"tokenizer_config.json: {key} is {shown_value(value)}; it must be true or false")
            elif value is not None or (key in self.config and flag == "strip_accents"):
                told[flag] = value
        if found.get("type", "BertNormalizer") != "BertNormalizer":
            if lowercase is not None:
                kind = shown_value(found["type"])
                self.problems.append(f"tokenizer.json: normalizer.type is {kind}; lowercase cannot be set")
            return found
        if lowercase is not None:
            told["lowercase"] = lowercase
        elif "lowercase" not in told | found:
            self._warn_of_capitals()
        return _BERT_NORMALIZER | found | told

    def _warn_of_capitals(self) -> None:
        pieces = self.vocabulary.token_ids.keys() - _SPECIAL_TOKENS.values()
        capitals = sum(piece != piece.lower() for piece in pieces)
        if capitals:
            logger.warning(
                "%s: no file says whether to lower-case; lower-casing, so %d pieces with capitals are never used. "
                'For a cased model add tokenizer_config.json with {"do_lower_case": false}',
                self.folder,
                capitals,
            )

    def _json(self, name: str, *, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
        if not os.path.lexists(self.folder / name):
            return {}
        try:
            return read_json_object(self.folder / name, max_bytes=max_bytes)
        except ValueError as error:
            self.problems.append(str(error))
            return {}

    def _object(self, parent: dict[str, Any], field: str, *, name: str) -> dict[str, Any]:
        value = parent.get(field)
        if value is not None and not isinstance(value, dict):
            self.problems.append(f"{name}: {field} must be an object")
        return value if isinstance(value, dict) else {}

    def _note(self, name: str, problems: Iterable[str]) -> None:
        self.problems += [f"{name}: {problem}" for problem in problems]
