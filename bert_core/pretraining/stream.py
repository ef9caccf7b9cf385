"""The batches of a training run in their order, from any place of it on.

Everything random follows from the seed and the place, so a run that goes on from where it was ended sees the same
batches as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bert_core.pretraining.batches import Collator, TrainingBatch, batched
from bert_core.pretraining.corpus import BEGINNING, Corpus, CorpusError, Place
from bert_core.pretraining.instances import (
    BLOCK_CHARACTERS,
    Instance,
    SegmentTokenizer,
    blocks,
    document_instances,
    pair_instances,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a run has come through its corpus.

    epoch: which time it is read, from 0.
    block: where the block begins that is being used.
    batch: how many batches of the block are done.
    epochs_done: the same as a number, for schedules.
    """

    epoch: int = 0
    block: Place = BEGINNING
    batch: int = 0
    epochs_done: float = 0.0

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Position:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**state, "block": Place(**state["block"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStream:
    """Endless batches of a corpus.

    corpus: read again and again.
    tokenize: text to segments.
    collate: instances to batches.
    max_length: tokens of a pair.
    batch_tokens: of a batch.
    seed: of everything random.
    block_characters: about how much text is in memory at a time.
    """

    corpus: Corpus
    tokenize: SegmentTokenizer
    collate: Collator
    max_length: int
    batch_tokens: int
    seed: int
    block_characters: int = BLOCK_CHARACTERS

    def batches(
        self, start: Position | None = None, *, rank: int = 0, ranks: int = 1
    ) -> Iterator[tuple[TrainingBatch, Position]]:
        """One batch of every `ranks`, the `rank`-th, each with the position after all of these.

        Raises:
            CorpusError: a fault of the text, or less than two documents (or pairs) of it.
        """
        turn = 0
        mine: TrainingBatch | None = None
        for instances, random, after in self._groups(start or Position()):
            if turn == rank:
                mine = self.collate(instances, random=random)
            turn += 1
            if turn == ranks:
                assert mine is not None
                yield mine, after
                turn = 0

    def _groups(self, position: Position) -> Iterator[tuple[list[Instance], np.random.Generator, Position]]:
        while True:
            following = Position(epoch=position.epoch + 1, epochs_done=position.epoch + 1)
            last = None
            for group in self._epoch(position):
                if last is not None:
                    yield last
                last = group
            if last is not None:  # whatever the files end with, an epoch is over with its last batch
                yield last[0], last[1], following
            position = following

    def _epoch(self, position: Position) -> Iterator[tuple[list[Instance], np.random.Generator, Position]]:
        corpus, epoch = self.corpus, position.epoch
        make = pair_instances if corpus.format == "pairs" else document_instances
        begin, done = position.block, position.batch
        found = False
        for block in blocks(corpus, self.tokenize, start=begin, block_characters=self.block_characters):
            seed = (self.seed, epoch, begin.file, begin.byte)
            random = np.random.default_rng(seed)
            if len(block.documents) < 2 and begin == BEGINNING:
                what = "pair" if corpus.format == "pairs" else "document (blank lines separate documents)"
                raise CorpusError(
                    f"{', '.join(path.name for path in corpus.paths)}: only one {what}; "
                    "a second half that does not follow comes from another one"
                )
            instances = list(make(block.documents, max_length=self.max_length, random=random))
            groups = list(batched(instances, batch_tokens=self.batch_tokens, random=random))
            share, share_after = corpus.share_read(begin), corpus.share_read(block.end)
            for number, group in enumerate(groups):
                found = True
                if number < done:
                    continue
                share_done = share + (share_after - share) * (number + 1) / len(groups)
                after = Position(epoch=epoch, block=begin, batch=number + 1, epochs_done=epoch + share_done)
                if number + 1 == len(groups):
                    after = replace(after, block=block.end, batch=0)
                yield group, np.random.default_rng((*seed, number)), after
            begin, done = block.end, 0
        if not found and position.block == BEGINNING:
            raise CorpusError(f"{', '.join(path.name for path in corpus.paths)}: there is no text in it")


def first_batches(stream: BatchStream, *, pairs: int) -> list[TrainingBatch]:
    """Batches of one reading until there are so many pairs, or of all text if it has fewer."""
    found: list[TrainingBatch] = []
    for batch, after in stream.batches():
        found.append(batch)
        pairs -= batch.sequences
        if pairs <= 0 or after.epochs_done >= 1:
            break
    return found
