"""`BertTokenizer`: text to ids, WordPiece as in Devlin et al. 2018."""

from __future__ import annotations

import os
from collections.abc import Sequence

import tokenizers

from bert_core.encoding import Encoding, PairHalf
from bert_core.plain_text import MOST_ADDED_TOKENS, PlainText
from bert_core.tokenized_text import CHUNK_CHARACTERS, TokenizedText, Tokens, chunk_boundary, positions
from bert_core.tokenizer_description import TokenizerDescription, TokenizerError
from bert_core.tokenizer_files import read_tokenizer_files
from bert_core.tokenizer_panics import TokenizerPanicError, panics_as_errors
from bert_core.truncation import MaskSpanError, SequenceTooLongError, TruncationSide, pair_lengths, window_start

__all__ = [
    "BertTokenizer",
    "Encoding",
    "MaskSpanError",
    "PairHalf",
    "SequenceTooLongError",
    "TokenizerError",
    "TokenizerPanicError",
    "TruncationSide",
]

# The library's `encode` holds the interpreter lock all the time, `encode_batch` gives it up. For a short text that
# costs more than it saves; a longer one would stop every other thread for over a millisecond.
_HOLD_LOCK_CHARACTERS = 2_048

# The same for `decode` and `decode_batch`.
_HOLD_LOCK_IDS = 256

# Expressions that look a text through hold the lock as well, for less than a tenth of the time. Only text that cannot
# be cut into chunks is as long.
_LONGEST_PLAIN_CHARACTERS = 100_000

_NOWHERE = (0, 0)


class BertTokenizer:
    """BERT's tokenizer: clean, split Chinese characters, lower-case, split at white space and punctuation, WordPiece.

    Special tokens (`[MASK]`, `[SEP]` …) are matched in the raw text, exactly and anywhere, as the reference does;
    `[mask]` or `[ MASK ]` is ordinary text. Nothing changes after construction but what is remembered of words, and
    threads may share one. A panic of the `tokenizers` library is a `TokenizerPanicError` in every method.

    Args:
        description: what a checkpoint folder says of its tokenizer.
        pair_segment_ids: the segment ids of the first half of a pair (and of a single text) and of the second.
    """

    def __init__(self, description: TokenizerDescription, *, pair_segment_ids: tuple[int, int] = (0, 1)) -> None:
        self._tokenizer = description.build()
        self._tokens = description.tokens
        self._pair_segment_ids = pair_segment_ids
        added_tokens = self._tokenizer.get_added_tokens_decoder().values()
        self._boundary = (
            chunk_boundary(added_tokens, split_chinese=description.split_chinese)
            if description.is_bert_pipeline
            else None
        )
        ids = description.token_ids
        self.cls_id, self.sep_id, self.mask_id, self.pad_id, self.unk_id = (
            ids[description.special_tokens[role]]
            for role in ("cls_token", "sep_token", "mask_token", "pad_token", "unk_token")
        )
        self.mask_token = description.special_tokens["mask_token"]
        self.lowercase = description.lowercase
        # Where a text may be cut into chunks, added tokens are such as can be looked up, too.
        few_added = len(description.added_tokens) <= MOST_ADDED_TOKENS
        self._plain = PlainText(description) if self._boundary is not None and few_added else None
        self.continuation_prefix: str = description.model["continuing_subword_prefix"]
        self.vocab_size = max(description.tokens) + 1
        self.unused_ids = [token_id for token_id in range(self.vocab_size) if token_id not in description.tokens]
        assert self.pieces(self.mask_token) == [self.mask_id]

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        lowercase: bool | None = None,
        pair_segment_ids: tuple[int, int] = (0, 1),
    ) -> BertTokenizer:
        """The tokenizer of a checkpoint folder, from `tokenizer.json` or `vocab.txt` alone.

        `tokenizer_config.json` and `special_tokens_map.json` are honoured, and win over `tokenizer.json`. Truncation
        and padding settings of `tokenizer.json` are not used.

        Args:
            folder: a folder in Hugging Face layout.
            lowercase: lower-case the text; None does what the folder says, else True.
            pair_segment_ids: the segment ids of the two halves of a pair.

        Raises:
            TokenizerError: the folder cannot be used; names everything that is wrong.
        """
        return cls(read_tokenizer_files(folder, lowercase=lowercase), pair_segment_ids=pair_segment_ids)

    def encode(
        self,
        text: str,
        *,
        max_length: int,
        truncate: TruncationSide | None = None,
        keep_masks: bool = False,
        offsets: bool = True,
    ) -> Encoding:
        """`[CLS] text [SEP]`.

        Args:
            text: any text; may be empty.
            max_length: tokens allowed, special tokens counted.
            truncate: the end to cut off an over-long text; None refuses it.
            keep_masks: never cut off a mask: the kept window moves as little as needed to hold all of them.
            offsets: whether the result has offsets, which take as long as all the rest.

        Raises:
            SequenceTooLongError: over `max_length`, and `truncate` is None.
            MaskSpanError: `keep_masks`, and no window holds all masks.
            ValueError: the text holds a lone surrogate, or `max_length` has no room for the special tokens.
        """
        room = _room(max_length, special_tokens=2)
        tokens = self._tokenized(text, enough=room if truncate == "right" and not keep_masks else None)
        truncated = tokens.length > room
        start, stop = 0, tokens.length
        if truncated:
            if truncate is None:
                raise SequenceTooLongError(length=tokens.length + 2, limit=max_length)
            masks = tokens.span(self.mask_token, self.mask_id) if keep_masks else None
            start = window_start(tokens.length, room=room, side=truncate, masks=masks)
            stop = start + room
        ids, places = tokens.window(start, stop, offsets=offsets)
        ids = [self.cls_id, *ids, self.sep_id]
        return Encoding(
            ids=ids,
            segment_ids=[self._pair_segment_ids[0]] * len(ids),
            offsets=[_NOWHERE, *places, _NOWHERE] if offsets else [],
            mask_positions=positions(ids, self.mask_id),
            truncated=truncated,
        )

    def pair_half(
        self, text: str, *, max_length: int, truncate: TruncationSide | None = None, offsets: bool = True
    ) -> PairHalf:
        """A text that is half of many pairs, tokenized once; the arguments as in `encode_pair`.

        Raises:
            ValueError: the text holds a lone surrogate, or `max_length` has no room for the special tokens.
        """
        room = _room(max_length, special_tokens=3)
        tokens = self._tokenized(text, enough=room if truncate == "right" else None)
        kept = min(tokens.length, room)
        start = tokens.length - kept if truncate == "left" else 0
        ids, places = tokens.window(start, start + kept, offsets=offsets)
        return PairHalf(length=tokens.length, ids=ids, offsets=places, max_length=max_length, truncate=truncate)

    def encode_pair(
        self,
        text: str | PairHalf,
        text_pair: str | PairHalf,
        *,
        max_length: int,
        truncate: TruncationSide | None = None,
        offsets: bool = True,
    ) -> Encoding:
        """`[CLS] text [SEP] text_pair [SEP]`; an empty half is still a half.

        Args:
            text: the first half; from `pair_half`, with the same `max_length` and `truncate`, if it has many pairs.
            text_pair: the second half, likewise.
            max_length: tokens allowed, special tokens counted.
            truncate: the end of each half to cut an over-long pair at, a token at a time off the longer half, off
                the second where they tie; None refuses it.
            offsets: whether the result has offsets; a half from `pair_half` must have them then.

        Raises:
            SequenceTooLongError: over `max_length`, and `truncate` is None.
            ValueError: a text holds a lone surrogate, a half was made for other pairs, or `max_length` has no room
                for the special tokens.
        """
        room = _room(max_length, special_tokens=3)
        first, second = (
            self._half(half, max_length=max_length, truncate=truncate, offsets=offsets) for half in (text, text_pair)
        )
        truncated = first.length + second.length > room
        if truncated and truncate is None:
            raise SequenceTooLongError(length=first.length + second.length + 3, limit=max_length)
        keep_first, keep_second = pair_lengths(first.length, second.length, room=room)
        first_ids, first_offsets = first.kept(keep_first)
        second_ids, second_offsets = second.kept(keep_second)
        ids = [self.cls_id, *first_ids, self.sep_id, *second_ids, self.sep_id]
        first_segment, second_segment = self._pair_segment_ids
        return Encoding(
            ids=ids,
            segment_ids=[first_segment] * (keep_first + 2) + [second_segment] * (keep_second + 1),
            offsets=[_NOWHERE, *first_offsets, _NOWHERE, *second_offsets, _NOWHERE] if offsets else [],
            mask_positions=positions(ids, self.mask_id),
            truncated=truncated,
        )

    def pieces(self, text: str) -> list[int]:
        """The ids of a text, with no special tokens around it. ValueError if it holds a lone surrogate."""
        tokens = self._tokenized(text)
        return tokens.window(0, tokens.length, offsets=False)[0]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Text of ids: pieces joined, a space between words. ValueError if an id is not of this vocabulary."""
        for place, token_id in enumerate(ids):
            if not 0 <= token_id < self.vocab_size:
                raise ValueError(f"ids[{place}] is {token_id}; it must be from 0 to {self.vocab_size - 1}")
        with panics_as_errors():
            if len(ids) <= _HOLD_LOCK_IDS:
                return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)
            return self._tokenizer.decode_batch([ids], skip_special_tokens=skip_special_tokens)[0]

    def token_to_id(self, token: str) -> int | None:
        """The id of a piece of the vocabulary, exactly as written there; None if it has no such piece."""
        try:
            return self._tokenizer.token_to_id(token)
        except UnicodeEncodeError:  # a lone surrogate, which no piece has
            return None

    def id_to_token(self, token_id: int) -> str | None:
        """The piece with this id; None for an id that the vocabulary does not use."""
        return self._tokens.get(token_id)

    def __repr__(self) -> str:
        return f"BertTokenizer(vocab_size={self.vocab_size}, lowercase={self.lowercase})"

    def _half(
        self, half: str | PairHalf, *, max_length: int, truncate: TruncationSide | None, offsets: bool
    ) -> PairHalf:
        if isinstance(half, str):
            return self.pair_half(half, max_length=max_length, truncate=truncate, offsets=offsets)
        if (half.max_length, half.truncate) != (max_length, truncate):
            raise ValueError(
                f"the half was made with max_length {half.max_length} and truncate {half.truncate}; "
                f"the pair has {max_length} and {truncate}"
            )
        if offsets and len(half.offsets) < len(half.ids):
            raise ValueError("the half was made without offsets")
        return half

    def _tokenized(self, text: str, *, enough: int | None = None) -> TokenizedText:
        if len(text) > CHUNK_CHARACTERS:
            _refuse_lone_surrogates(text)
        return TokenizedText(text, tokenize=self._tokenize, boundary=self._boundary, enough=enough)

    def _tokenize(self, text: str) -> Tokens:
        tokens: Tokens | None = None
        if self._plain is not None and len(text) <= _LONGEST_PLAIN_CHARACTERS:
            tokens = self._plain.tokenize(text)
            if tokens is None:
                _refuse_lone_surrogates(text)  # whose place in a single word is not that in the text
                tokens = self._plain.tokenize_most(text, otherwise=self._by_library)
        return self._by_library(text) if tokens is None else tokens

    def _by_library(self, text: str) -> tokenizers.Encoding:
        try:
            with panics_as_errors():
                if len(text) <= _HOLD_LOCK_CHARACTERS:
                    return self._tokenizer.encode(text, add_special_tokens=False)
                return self._tokenizer.encode_batch([text], add_special_tokens=False)[0]
        except TypeError:
            if isinstance(text, str):
                _refuse_lone_surrogates(text)
            raise


def _room(max_length: int, *, special_tokens: int) -> int:
    if max_length < special_tokens:
        raise ValueError(f"max_length is {max_length}; the special tokens alone take {special_tokens}")
    return max_length - special_tokens


def _refuse_lone_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"the text holds a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}"
        raise ValueError(f"{message}; it must be valid Unicode") from None
