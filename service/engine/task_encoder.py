"""Tasks to token ids, whatever their kind."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from bert_core import BertTokenizer
from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.tokenizer import SequenceTooLongError
from service.engine.encoding import ALL_ROWS, EncodedTask, Sequence
from service.engine.mask_encoder import MaskEncoder
from service.engine.sentence_files import SentenceFiles
from service.engine.text_encoder import TextEncoder, too_long
from service.errors import EmptyInput, HeadMissing, InvalidInput
from service.tasks import (
    Decode,
    DecodeResult,
    Embed,
    EmbedAll,
    EmbedSparse,
    FillMask,
    FillNextMask,
    ModelInfo,
    NextSentence,
    Task,
    Tokenize,
    TokenizeResult,
)

NUMBER_CHARACTERS = 12
"""What a float32 takes in an answer, about."""

WEIGHT_CHARACTERS = 4
"""What a piece of the vocabulary takes of a sparse embedding while it is made, in bytes. Most weights come to zero."""

TOKEN_CHARACTERS = 100
"""What a token takes in an answer, with the names of its fields, at most about."""

HALVES_KEPT = 4
"""Tokenized halves of pairs that are remembered: two for each thread that tokenizes."""

MOST_TOKENS = 100_000
"""Of one text to tokenize, or one list of ids to decode."""


class TaskEncoder:
    """Turns tasks into token ids. Any thread may call it.

    Args:
        tokenizer: of the checkpoint.
        config: the model's, for its limits.
        heads: which heads the checkpoint holds.
        info: the facts that requests are checked against.
        files: what the checkpoint's sentence-transformers files say, for its prompts.
    """

    def __init__(
        self, tokenizer: BertTokenizer, *, config: BertConfig, heads: Heads, info: ModelInfo, files: SentenceFiles
    ) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self._heads = heads
        self._info = info
        self._texts = TextEncoder(tokenizer, config=config, info=info, files=files)
        self._masks = MaskEncoder(tokenizer, texts=self._texts, limit=info.max_input_length)
        # By text: the first half of a pair often stands in all pairs of a request.
        self._pair_half = lru_cache(HALVES_KEPT)(
            partial(tokenizer.pair_half, max_length=info.max_input_length, offsets=False)
        )
        self._pooler_rows = ALL_ROWS if config.pooler_type == "all_token_average" else [0]

    def encode(self, task: Task) -> EncodedTask:
        """Encode one task.

        Raises:
            HeadMissing: the checkpoint lacks a head that the task needs.
            EmptyInput: nothing is left of the text after cleaning.
            InvalidInput: too long, no mask, a bad target, ids that are none of the model's, …
        """
        match task:
            case FillMask():
                self._require_mlm("so it cannot fill masks")
                return self._masks.fill_mask(task)
            case FillNextMask():
                self._require_mlm("so it cannot fill masks")
                return self._masks.fill_next_mask(task)
            case NextSentence():
                return self._next_sentence(task)
            case Embed():
                return self._embed(task)
            case EmbedAll():
                return self._embed_all(task)
            case EmbedSparse():
                self._require_mlm("which sparse embeddings are made with")
                return self._embed_sparse(task)
            case Tokenize():
                return self._tokenize(task)
            case Decode():
                return self._decode(task)

    def _require_mlm(self, consequence: str) -> None:
        if not self._heads.mlm:
            raise HeadMissing(f"this checkpoint holds no masked-LM head (cls.predictions), {consequence}")

    def _next_sentence(self, task: NextSentence) -> EncodedTask:
        if not self._heads.nsp:
            raise HeadMissing("this checkpoint holds no next-sentence head (cls.seq_relationship)")
        if not self._config.has_pair_segments:
            raise HeadMissing("this checkpoint has one segment embedding (type_vocab_size 1), so it knows no pairs")
        limit, side = self._info.max_input_length, task.truncate
        try:
            first, second = (self._pair_half(text, truncate=side) for text in (task.text, task.text_pair))
            encoding = self._tokenizer.encode_pair(first, second, max_length=limit, truncate=side, offsets=False)
        except SequenceTooLongError as error:
            raise too_long(error, what="pair") from None
        except ValueError as error:
            raise InvalidInput(str(error), field="inputs") from None
        if len(encoding.ids) == 3:  # [CLS] [SEP] [SEP]
            raise EmptyInput("both halves are empty; at least one must hold text", field="inputs")
        return EncodedTask(
            task=task,
            sequences=(Sequence(encoding.ids, encoding.segment_ids, self._pooler_rows),),
            truncated=encoding.truncated,
        )

    def _embed(self, task: Embed) -> EncodedTask:
        pooling = task.pooling or self._info.pooling
        if pooling == "pooler" and not self._heads.pooler:
            raise HeadMissing("this checkpoint holds no pooler; use pooling cls, mean or max")
        self._check_dimensions(task)
        wanted = {"cls": [0], "pooler": self._pooler_rows}.get(pooling, ALL_ROWS)
        sequence, truncated = self._texts.embedding_sequence(task, wanted=wanted)
        return EncodedTask(task=task, sequences=(sequence,), pooling=pooling, truncated=truncated)

    def _embed_all(self, task: EmbedAll) -> EncodedTask:
        sequence, truncated = self._texts.embedding_sequence(task, wanted=ALL_ROWS)
        characters = NUMBER_CHARACTERS * self._config.hidden_size * len(sequence.ids)
        return EncodedTask(task=task, sequences=(sequence,), truncated=truncated, answer_characters=characters)

    def _embed_sparse(self, task: EmbedSparse) -> EncodedTask:
        sequence, truncated = self._texts.embedding_sequence(task, wanted=ALL_ROWS)
        characters = WEIGHT_CHARACTERS * self._info.vocab_size
        return EncodedTask(task=task, sequences=(sequence,), truncated=truncated, answer_characters=characters)

    def _check_dimensions(self, task: Embed) -> None:
        width = self._config.hidden_size
        if task.dimensions is not None and not 1 <= task.dimensions <= width:
            raise InvalidInput(f"must be from 1 to {width}, the width of the model", field="dimensions")

    def _tokenize(self, task: Tokenize) -> EncodedTask:
        tokenizer, text = self._tokenizer, self._texts.prompt(task.prompt_name) + task.text
        try:
            encoding = tokenizer.encode(text, max_length=MOST_TOKENS)
        except SequenceTooLongError as error:
            raise InvalidInput(
                f"the text has {error.length} tokens, [CLS] and [SEP] counted; at most {error.limit} to tokenize",
                field="inputs",
            ) from None
        except ValueError as error:
            raise InvalidInput(str(error), field="inputs") from None
        ends = [tokenizer.cls_id, tokenizer.sep_id] if task.add_special_tokens else []
        part = slice(None) if ends else slice(1, -1)
        result = TokenizeResult(
            text=text,
            ids=np.array(encoding.ids[part], dtype=np.int64),
            offsets=np.array(encoding.offsets[part], dtype=np.int64).reshape(-1, 2),
            special_tokens=tuple(tokenizer.id_to_token(token) or "" for token in ends),
        )
        characters = TOKEN_CHARACTERS * len(result.ids)
        return EncodedTask(task=task, sequences=(), answer_characters=characters, result=result)

    def _decode(self, task: Decode) -> EncodedTask:
        if len(task.ids) > MOST_TOKENS:
            raise InvalidInput(f"{len(task.ids)} token ids; at most {MOST_TOKENS} to decode", field="inputs")
        self._texts.require_known(task.ids)
        text = self._tokenizer.decode(task.ids, skip_special_tokens=task.skip_special_tokens)
        return EncodedTask(task=task, sequences=(), answer_characters=len(text), result=DecodeResult(text=text))
