"""Masking keeps to the paper's shares, within 5 standard deviations."""

from __future__ import annotations

import numpy as np
import pytest

from bert_core.pretraining.masking import Masking

RANDOM_IDS = np.arange(100, 1100, dtype=np.int32)


def masking(*, whole_words: bool = False) -> Masking:
    return Masking(mask_id=4, random_ids=RANDOM_IDS, whole_words=whole_words)


def ordinary(length: int, *, special: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    flags = np.ones(length, dtype=np.bool_)
    flags[list(special)] = False
    return flags


def test_each_ordinary_token_is_as_likely_as_any_other_and_special_ones_never() -> None:
    flags = ordinary(103, special=(0, 50, 102))
    random = np.random.default_rng(0)
    counts = np.zeros(103)
    for _ in range(4000):
        places = masking().places(ordinary=flags, starts_word=np.ones(103, dtype=np.bool_), random=random)
        assert len(places) == 15
        assert (np.diff(places) > 0).all()
        counts[places] += 1
    assert counts[[0, 50, 102]].tolist() == [0, 0, 0]
    assert np.abs(counts[flags] / 4000 - 0.15).max() < 5 * (0.15 * 0.85 / 4000) ** 0.5


@pytest.mark.parametrize(("length", "count"), [(4, 1), (5, 1), (13, 2), (23, 3), (128, 19)])
def test_fifteen_percent_are_masked_and_one_at_least(length: int, count: int) -> None:
    flags = ordinary(length, special=(0, 2, length - 1))
    places = masking().places(ordinary=flags, starts_word=flags, random=np.random.default_rng(1))
    assert len(places) == count


def test_of_the_masked_80_percent_are_the_mask_10_random_10_kept() -> None:
    ids = np.full(40_000, 7, dtype=np.int32)
    seen = masking().replacements(ids, random=np.random.default_rng(0))
    shares = {"mask": (seen == 4).mean(), "random": np.isin(seen, RANDOM_IDS).mean(), "kept": (seen == 7).mean()}
    assert sum(shares.values()) == pytest.approx(1)
    for name, share in (("mask", 0.8), ("random", 0.1), ("kept", 0.1)):
        assert abs(shares[name] - share) < 5 * (share * (1 - share) / len(ids)) ** 0.5, name
    drawn = np.bincount(seen[np.isin(seen, RANDOM_IDS)], minlength=1100)[100:]
    assert (drawn > 0).mean() > 0.9  # about 4 of each


def test_whole_words_are_masked_whole() -> None:
    """Words of 1, 2, 3, 1, 2, 3 … tokens between three special tokens."""
    sizes = [1, 2, 3] * 16
    starts = np.concatenate([[True], *([True] + [False] * (size - 1) for size in sizes), [True]])
    flags = ordinary(len(starts), special=(0, len(starts) - 1))
    word_of = np.cumsum(starts)
    random = np.random.default_rng(0)
    masked = []
    for _ in range(500):
        places = masking(whole_words=True).places(ordinary=flags, starts_word=starts, random=random)
        for word in set(word_of[places].tolist()):
            assert set(np.flatnonzero(word_of == word).tolist()) <= set(places.tolist())
        assert flags[places].all()
        masked.append(len(places))
    assert max(masked) <= round(0.15 * flags.sum())
    assert np.mean(masked) > 0.12 * flags.sum()


def test_a_word_longer_than_the_share_is_masked_all_the_same() -> None:
    starts = np.array([True, True, False, False, False, True])
    flags = ordinary(6, special=(0, 5))
    places = masking(whole_words=True).places(ordinary=flags, starts_word=starts, random=np.random.default_rng(0))
    assert places.tolist() == [1, 2, 3, 4]


def test_the_rest_of_a_word_whose_front_was_cut_is_a_word_by_itself() -> None:
    """`[CLS] ##b ##c d [SEP] ##f g [SEP]`: four words, of which one is masked at a time."""
    starts = np.array([True, False, False, True, True, False, True, True])
    flags = ordinary(8, special=(0, 4, 7))
    found = {
        tuple(masking(whole_words=True).places(ordinary=flags, starts_word=starts, random=random).tolist())
        for random in map(np.random.default_rng, range(50))
    }
    assert found == {(1, 2), (3,), (5,), (6,)}
