"""From documents to pairs of segments: the instances of the next-sentence task (Devlin et al. 2018, section 3.1).

A block of documents is in memory at a time; the random second segments come from the same block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bert_core.pretraining.corpus import Corpus, Place
from bert_core.tokenizer import BertTokenizer
from bert_core.truncation import pair_lengths

Ids = NDArray[np.int32]
Flags = NDArray[np.bool_]

SPECIAL_TOKENS = 3
LEAST_MAX_LENGTH = SPECIAL_TOKENS + 2
SHORT_SHARE = 0.1
RANDOM_SHARE = 0.5
BLOCK_CHARACTERS = 8_000_000
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A tokenized sentence or paragraph. ids: `[L]`. starts_word: `[L]`, false where a token goes on with a word."""

    ids: Ids
    starts_word: Flags

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Segment:
        return Segment(self.ids[part], self.starts_word[part])


def joined(segments: Sequence[Segment]) -> Segment:
    """One after the other."""
    return Segment(
        np.concatenate([segment.ids for segment in segments]),
        np.concatenate([segment.starts_word for segment in segments]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A pair for both tasks. is_random: the second half does not follow the first but comes from elsewhere."""

    first: Segment
    second: Segment
    is_random: bool

    @property
    def tokens(self) -> int:
        """Special tokens counted."""
        return len(self.first) + len(self.second) + SPECIAL_TOKENS


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """As much of a corpus as is in memory at a time. end: where the next block begins."""

    documents: list[list[Segment]]
    end: Place


class SegmentTokenizer:
    """Text to segments, with the places where words begin, for whole-word masking.

    A word is what stands between spaces and punctuation. So Chinese text that was split into words by spaces has whole
    words, though BERT's tokenizer takes each character by itself.
    """

    def __init__(self, tokenizer: BertTokenizer) -> None:
        self._tokenizer = tokenizer
        prefix = tokenizer.continuation_prefix
        self._continues = np.array([piece.startswith(prefix) for piece in all_pieces(tokenizer)])
        self._special_ids = special_ids(tokenizer)

    def __call__(self, text: str) -> Segment:
        """Tokenize one segment; special tokens that stand in it are left out."""
        half = self._tokenizer.pair_half(text, max_length=_NO_LIMIT)
        ids = np.array(half.ids, dtype=np.int32)
        starts_word = ~self._continues[ids]
        begins = [begin for begin, _ in half.offsets]
        for number in np.flatnonzero(starts_word[1:]) + 1:
            begin = begins[number]
            if half.offsets[number - 1][1] == begin and _is_chinese(text[begin - 1]) and _is_chinese(text[begin]):
                starts_word[number] = False
        kept = ~np.isin(ids, self._special_ids)
        return Segment(ids[kept], starts_word[kept])


def all_pieces(tokenizer: BertTokenizer) -> list[str]:
    """Of every id in order; empty where an id stands for nothing."""
    return [tokenizer.id_to_token(token) or "" for token in range(tokenizer.vocab_size)]


def special_ids(tokenizer: BertTokenizer) -> list[int]:
    """Ids that stand for no text."""
    return [tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id]


def _is_chinese(character: str) -> bool:
    return (
        "\u4e00" <= character <= "\u9fff"
        or "\u3400" <= character <= "\u4dbf"
        or "\uf900" <= character <= "\ufaff"
        or "\U00020000" <= character <= "\U0002fa1f"
    )


def blocks(
    corpus: Corpus, tokenize: SegmentTokenizer, *, start: Place, block_characters: int = BLOCK_CHARACTERS
) -> Iterator[Block]:
    """The documents of a corpus from a place on, tokenized, in blocks of about so many characters.

    Two documents at least, but in the last block: a random half is from another one.
    """
    documents: list[list[Segment]] = []
    characters = 0
    end = start
    for document in corpus.documents(start):
        segments = [segment for text in document.segments if len(segment := tokenize(text))]
        if len(segments) >= (2 if corpus.format == "pairs" else 1):
            documents.append(segments)
        characters += sum(map(len, document.segments))
        end = document.end
        if characters >= block_characters and len(documents) > 1:
            yield Block(documents, end)
            documents, characters = [], 0
    if documents:
        yield Block(documents, end)


def document_instances(
    documents: Sequence[Sequence[Segment]], *, max_length: int, random: np.random.Generator
) -> Iterator[Instance]:
    """Pairs from consecutive segments, as BERT's `create_instances_from_document` makes them.

    Half of the second halves come from another document, at random. One target length in ten is short, so that the
    model sees short sequences too. What is over the target goes token by token, from the front or the back of the
    longer half at random. Unlike there, a first half is not left without a successor as long as its document has one,
    so that half of the pairs are random also where segments are long.

    Args:
        documents: not empty, nor any of them.
        max_length: tokens of a pair, special tokens counted.
    """
    room = max_length - SPECIAL_TOKENS
    for number, document in enumerate(documents):
        position = 0
        while position < len(document):
            target = int(random.integers(2, room + 1)) if random.random() < SHORT_SHARE else room
            chunk = _chunk(document, position, target=target)
            position += len(chunk)
            split = int(random.integers(1, len(chunk))) if len(chunk) > 1 else 1
            first = joined(chunk[:split])
            is_random = len(chunk) == 1 or random.random() < RANDOM_SHARE
            if is_random and len(documents) > 1:
                second = _random_segment(
                    documents, other_than=number, tokens=max(1, target - len(first)), random=random
                )
                position -= len(chunk) - split  # its own successors were not used
            elif len(chunk) > 1:
                is_random = False
                second = joined(chunk[split:])
            else:
                continue
            yield Instance(*truncated(first, second, room=target, random=random), is_random)


def _chunk(document: Sequence[Segment], begin: int, *, target: int) -> Sequence[Segment]:
    """Segments until the target length is reached; two at least, if there are."""
    tokens = 0
    for end in range(begin, len(document)):
        tokens += len(document[end])
        if tokens >= target and end > begin:
            return document[begin : end + 1]
    return document[begin:]


def _random_segment(
    documents: Sequence[Sequence[Segment]], *, other_than: int, tokens: int, random: np.random.Generator
) -> Segment:
    """From a random place of another document on, at least so many tokens if there are."""
    number = int(random.integers(len(documents) - 1))
    document = documents[number + (number >= other_than)]
    begin = int(random.integers(len(document)))
    found: list[Segment] = []
    for segment in itertools.islice(document, begin, None):
        found.append(segment)
        tokens -= len(segment)
        if tokens <= 0:
            break
    return joined(found)


def pair_instances(
    documents: Sequence[Sequence[Segment]], *, max_length: int, random: np.random.Generator
) -> Iterator[Instance]:
    """Given pairs as they are, half of them with the second half of another pair in place of their own."""
    for number, (first, own) in enumerate(documents):
        second = own
        is_random = len(documents) > 1 and random.random() < RANDOM_SHARE
        if is_random:
            other = int(random.integers(len(documents) - 1))
            second = documents[other + (other >= number)][1]
        yield Instance(*truncated(first, second, room=max_length - SPECIAL_TOKENS, random=random), is_random)


def truncated(first: Segment, second: Segment, *, room: int, random: np.random.Generator) -> tuple[Segment, Segment]:
    """Both halves in so many tokens: each token too many goes from the longer half, its front or back at random."""
    kept_of_first, kept_of_second = pair_lengths(len(first), len(second), room=room)
    return _cut(first, kept_of_first, random=random), _cut(second, kept_of_second, random=random)


def _cut(segment: Segment, kept: int, *, random: np.random.Generator) -> Segment:
    begin = int(random.binomial(len(segment) - kept, 0.5))
    return segment[begin : begin + kept]
