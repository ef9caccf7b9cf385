"""Batches hold what the instances say, masked, within their budget."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from bert_core.pretraining.batches import Collator, batched
from bert_core.pretraining.instances import Instance, Segment
from bert_core.tokenizer import BertTokenizer
from tests.tiny import tiny_config

CLS, SEP, MASK = 2, 3, 4


def instance(first: int, second: int, *, is_random: bool = False) -> Instance:
    """Halves of so many tokens."""
    halves = [Segment(np.arange(5, 5 + n, dtype=np.int32), np.ones(n, dtype=np.bool_)) for n in (first, second)]
    return Instance(halves[0], halves[1], is_random)


@pytest.mark.parametrize("segments", [(0, 1), (1, 2)])
def test_a_batch_is_its_instances_put_together(tokenizer: BertTokenizer, segments: tuple[int, int]) -> None:
    collate = Collator(tokenizer, config=tiny_config(pair_segment_ids=segments), whole_words=False)
    batch = collate([instance(2, 3), instance(20, 9, is_random=True)], random=np.random.default_rng(0))
    assert batch.masked.lengths == [32, 8]
    assert (batch.tokens, batch.sequences) == (40, 2)
    assert batch.next_N.tolist() == [1, 0]
    long, short = batch.clean_ids_T.split([32, 8])
    assert long.tolist() == [CLS, *range(5, 25), SEP, *range(5, 14), SEP]
    assert short.tolist() == [CLS, 5, 6, SEP, 5, 6, 7, SEP]
    first, second = segments
    assert batch.masked.segments_T.tolist() == [first] * 22 + [second] * 10 + [first] * 4 + [second] * 4
    assert batch.masked.positions_T.tolist() == [*range(32), *range(8)]
    assert batch.counts == [4, 1]
    assert (batch.places_M.diff() > 0).all()
    assert [int((batch.places_M < 32).sum()), int((batch.places_M >= 32).sum())] == [4, 1]
    assert batch.labels_M.tolist() == batch.clean_ids_T[batch.places_M].tolist()
    assert not torch.isin(batch.labels_M, torch.tensor([CLS, SEP])).any()
    seen = batch.masked.ids_T
    assert seen is not None
    elsewhere = torch.ones(40, dtype=torch.bool).index_fill(0, batch.places_M, False)
    assert seen[elsewhere].equal(batch.clean_ids_T[elsewhere])
    assert batch.clean.ids_T is batch.clean_ids_T


def test_random_replacements_are_ordinary_pieces(tokenizer: BertTokenizer) -> None:
    collate = Collator(tokenizer, config=tiny_config(), whole_words=False)
    batch = collate([instance(500, 500)] * 20, random=np.random.default_rng(0))
    assert batch.masked.ids_T is not None
    seen = batch.masked.ids_T[batch.places_M]
    assert set(seen.tolist()) & {0, 1, CLS, SEP} == set()
    assert (seen == MASK).double().mean().item() == pytest.approx(0.8, abs=0.05)


def test_batches_keep_to_their_budget_and_lose_nothing() -> None:
    random = np.random.default_rng(0)
    instances = [instance(int(random.integers(1, 60)), int(random.integers(1, 60))) for _ in range(700)]
    batches = list(batched(instances, batch_tokens=500, random=random))
    assert Counter(id(one) for batch in batches for one in batch) == Counter(map(id, instances))
    tokens = [sum(one.tokens for one in batch) for batch in batches]
    assert max(tokens) <= 500
    assert np.mean(tokens) > 400
    spread = np.mean([max(one.tokens for one in batch) - min(one.tokens for one in batch) for batch in batches])
    assert spread < 20  # neighbours in length come together
    lengths = [batch[0].tokens for batch in batches]
    assert lengths != sorted(lengths)  # and not the short ones first


def test_an_instance_longer_than_the_budget_has_a_batch_of_its_own() -> None:
    batches = list(batched([instance(50, 50), instance(2, 2)], batch_tokens=20, random=np.random.default_rng(0)))
    assert sorted(len(batch) for batch in batches) == [1, 1]
