"""Instances to packed batches of a token budget, masked anew each time.

Axes: T packed tokens, M masked ones, N sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from bert_core.budget import groups_within
from bert_core.config import BertConfig
from bert_core.packing import PackedTokens
from bert_core.pretraining.instances import Instance, special_ids
from bert_core.pretraining.masking import Masking
from bert_core.tokenizer import BertTokenizer

BATCHES_SORTED_TOGETHER = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingBatch:
    """N pairs as the model sees them, and what it is to say.

    masked: the tokens, some replaced.
    clean_ids_T: int64, before that.
    places_M: int64, the packed tokens to predict, ascending. counts: how many of each sequence.
    labels_M: int64, what stood there.
    next_N: int64, 0 where the second half follows the first.
    """

    masked: PackedTokens
    clean_ids_T: Tensor
    places_M: Tensor
    counts: Sequence[int]
    labels_M: Tensor
    next_N: Tensor

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.clean_ids_T)

    @property
    def sequences(self) -> int:
        """N."""
        return len(self.next_N)

    @property
    def clean(self) -> PackedTokens:
        """The tokens with nothing replaced."""
        return replace(self.masked, ids_T=self.clean_ids_T)

    def to(self, device: torch.device) -> TrainingBatch:
        """On another device."""
        if device.type == "cpu":
            return self
        move = partial(torch.Tensor.to, device=device, non_blocking=True)
        masked = self.masked
        assert masked.ids_T is not None
        return replace(
            self,
            masked=replace(
                masked,
                ids_T=move(masked.ids_T),
                segments_T=move(masked.segments_T),
                positions_T=move(masked.positions_T),
            ),
            clean_ids_T=move(self.clean_ids_T),
            places_M=move(self.places_M),
            labels_M=move(self.labels_M),
            next_N=move(self.next_N),
        )


class Collator:
    """Puts instances together as `[CLS] first [SEP] second [SEP]`, masked.

    Args:
        tokenizer: whose special tokens are used.
        config: for the segment ids of the two halves.
        whole_words: mask whole words.

    Raises:
        ValueError: the vocabulary has nothing to put in a token's place.
    """

    def __init__(self, tokenizer: BertTokenizer, *, config: BertConfig, whole_words: bool) -> None:
        self._cls_id, self._sep_id = tokenizer.cls_id, tokenizer.sep_id
        self._segments = config.pair_segment_ids
        unusable = {*special_ids(tokenizer), *tokenizer.unused_ids, tokenizer.unk_id}
        random_ids = np.array([n for n in range(tokenizer.vocab_size) if n not in unusable], dtype=np.int32)
        if not len(random_ids):
            raise ValueError("vocabulary: there are only special tokens in it, and no pieces of text")
        self._masking = Masking(
            mask_id=tokenizer.mask_id,
            random_ids=random_ids,
            whole_words=whole_words,
        )

    def __call__(self, instances: Sequence[Instance], *, random: np.random.Generator) -> TrainingBatch:
        """A batch in the order of the instances' lengths, so that those of one length are attended together."""
        ordered = sorted(instances, key=_tokens, reverse=True)
        ids, segments, places = [], [], []
        begin = 0
        counts = []
        for instance in ordered:
            first, second = instance.first, instance.second
            sequence = np.concatenate([[self._cls_id], first.ids, [self._sep_id], second.ids, [self._sep_id]])
            ordinary = np.ones(len(sequence), dtype=np.bool_)
            ordinary[[0, len(first) + 1, -1]] = False
            starts_word = np.concatenate([[True], first.starts_word, [True], second.starts_word, [True]])
            found = self._masking.places(ordinary=ordinary, starts_word=starts_word, random=random)
            places.append(found + begin)
            counts.append(len(found))
            ids.append(sequence)
            segments.append(np.repeat(self._segments, [len(first) + 2, len(second) + 1]))
            begin += len(sequence)
        lengths = [len(sequence) for sequence in ids]
        clean = np.concatenate(ids).astype(np.int64)
        places_M = np.concatenate(places).astype(np.int64)
        labels = clean[places_M]
        seen = clean.copy()
        seen[places_M] = self._masking.replacements(labels.astype(np.int32), random=random)
        return TrainingBatch(
            masked=PackedTokens(
                ids_T=torch.from_numpy(seen),
                segments_T=torch.from_numpy(np.concatenate(segments).astype(np.int64)),
                positions_T=torch.from_numpy(np.concatenate([np.arange(length) for length in lengths])),
                lengths=lengths,
            ),
            clean_ids_T=torch.from_numpy(clean),
            places_M=torch.from_numpy(places_M),
            counts=counts,
            labels_M=torch.from_numpy(labels),
            next_N=torch.tensor([int(instance.is_random) for instance in ordered]),
        )


def batched(
    instances: Sequence[Instance], *, batch_tokens: int, random: np.random.Generator
) -> Iterator[list[Instance]]:
    """Instances in random order in batches of at most so many tokens; one that is longer has a batch of its own.

    Neighbours in length come together, a few batches' worth at a time, and the batches in random order again.
    """
    order = random.permutation(len(instances))
    shuffled = [instances[number] for number in order]
    for group in groups_within(shuffled, budget=batch_tokens * BATCHES_SORTED_TOGETHER, cost=_tokens):
        batches = list(groups_within(sorted(group, key=_tokens), budget=batch_tokens, cost=_tokens))
        for number in random.permutation(len(batches)):
            yield batches[number]


def _tokens(instance: Instance) -> int:
    return instance.tokens
