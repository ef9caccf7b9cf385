"""Sequences for the model, as the tokenizer makes them."""

from __future__ import annotations

from dataclasses import dataclass

from bert_core.truncation import TruncationSide


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """One sequence for the model, `[CLS]` first and `[SEP]` last.

    ids: token ids.
    segment_ids: one a token, from how the sequence was put together: a `[SEP]` inside a text changes nothing.
    offsets: one a token, start and end in characters (code points) of the text, or the half of a pair, that the
        token comes from; (0, 0) for the special tokens put around the texts. Empty if they were not asked for.
    mask_positions: places in `ids` of the mask token, in order.
    truncated: whether tokens were cut.
    """

    ids: list[int]
    segment_ids: list[int]
    offsets: list[tuple[int, int]]
    mask_positions: list[int]
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairHalf:
    """What `BertTokenizer.encode_pair` needs of a text that is half of a pair, for use in many pairs.

    length: tokens of the text; where only its beginning is needed, perhaps not all.
    ids, offsets: of the tokens that a pair may keep, at most as many as it has room for; offsets if asked for.
    max_length, truncate: of the pairs that it is for.
    """

    length: int
    ids: list[int]
    offsets: list[tuple[int, int]]
    max_length: int
    truncate: TruncationSide | None

    def kept(self, tokens: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids and offsets of so many tokens, without those that are cut."""
        part = slice(len(self.ids) - tokens, None) if self.truncate == "left" else slice(tokens)
        return self.ids[part], self.offsets[part]
