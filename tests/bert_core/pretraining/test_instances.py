"""Pairs are made as BERT's own script makes them, within the bounds of chance."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bert_core.pretraining.corpus import BEGINNING, Corpus
from bert_core.pretraining.instances import (
    Instance,
    Segment,
    SegmentTokenizer,
    blocks,
    document_instances,
    pair_instances,
    truncated,
)
from bert_core.tokenizer import BertTokenizer


def segment(*ids: int) -> Segment:
    return Segment(np.array(ids, dtype=np.int32), np.ones(len(ids), dtype=np.bool_))


def document(number: int, *, segments: int, length: int) -> list[Segment]:
    """Every id is its document, its segment and its place: 1 02 003."""
    return [
        segment(*(number * 100_000 + place * 1_000 + token for token in range(length))) for place in range(segments)
    ]


def made(documents: list[list[Segment]], *, max_length: int = 64, seed: int = 0) -> list[Instance]:
    return list(document_instances(documents, max_length=max_length, random=np.random.default_rng(seed)))


def test_halves_are_consecutive_or_from_another_document() -> None:
    documents = [document(number, segments=20, length=7) for number in range(30)]
    instances = made(documents)
    assert len(instances) > 100
    for instance in instances:
        first, second = instance.first.ids, instance.second.ids
        assert len(first) >= 1
        assert len(second) >= 1
        assert instance.tokens == len(first) + len(second) + 3 <= 64
        assert (np.diff(first) >= 1).all()
        if instance.is_random:
            assert first[0] // 100_000 != second[0] // 100_000
        else:
            assert first[0] // 100_000 == second[0] // 100_000
            # From the segment after the one where the first half ends, unless its front was cut.
            assert second[0] // 1_000 > first[-1] // 1_000


def test_half_of_the_second_halves_are_random() -> None:
    """5 standard deviations of a fair coin; with long segments too."""
    for length in (5, 90):
        instances = made([document(number, segments=40, length=length) for number in range(100)])
        share = np.mean([instance.is_random for instance in instances])
        assert abs(share - 0.5) < 5 * 0.5 / len(instances) ** 0.5, length


def test_a_tenth_of_the_pairs_is_short() -> None:
    instances = made([document(number, segments=900, length=1) for number in range(40)])
    short = np.mean([instance.tokens < 64 for instance in instances])
    # Of those with a full first half a tenth; the ends of documents add one of about fifteen.
    assert 0.1 - 5 * (0.09 / len(instances)) ** 0.5 < short < 0.2
    assert np.median([instance.tokens for instance in instances]) == 64


def test_every_segment_that_a_random_half_replaced_is_used_again() -> None:
    documents = [document(number, segments=50, length=3) for number in range(4)]
    used = Counter(
        int(token) // 1_000
        for instance in made(documents, max_length=40)
        for half in ((instance.first,) if instance.is_random else (instance.first, instance.second))
        for token in half.ids
    )
    assert len(used) >= 4 * 50 * 0.95


def test_a_lone_segment_has_only_random_halves_and_a_lone_document_none() -> None:
    lone = [document(number, segments=1, length=9) for number in range(5)]
    assert [instance.is_random for instance in made(lone)] == [True] * 5
    assert made(lone[:1]) == []
    assert not any(instance.is_random for instance in made([document(1, segments=9, length=9)]))


def test_what_is_too_long_goes_from_the_longer_half_front_or_back() -> None:
    first, second = document(1, segments=1, length=40)[0], document(2, segments=1, length=10)[0]
    fronts = []
    for seed in range(200):
        cut, kept = truncated(first, second, room=30, random=np.random.default_rng(seed))
        assert (len(cut), len(kept)) == (20, 10)
        assert (np.diff(cut.ids) == 1).all()
        fronts.append(int(cut.ids[0] - first.ids[0]))
    assert abs(np.mean(fronts) - 10) < 5 * (20 * 0.25 / 200) ** 0.5


@pytest.mark.parametrize(
    ("lengths", "room", "kept"),
    [
        ((3, 4), 7, (3, 4)),
        ((3, 4), 8, (3, 4)),
        ((40, 2), 7, (5, 2)),
        ((2, 40), 7, (2, 5)),
        ((9, 9), 7, (4, 3)),
        ((9, 9), 2, (1, 1)),
        ((3_000_000, 5_000_000), 7, (4, 3)),
    ],
)
def test_halves_are_cut_to_like_lengths(lengths: tuple[int, int], room: int, kept: tuple[int, int]) -> None:
    """As BERT's `truncate_seq_pair`, at once however long they are."""
    halves = [Segment(np.arange(length, dtype=np.int32), np.ones(length, dtype=np.bool_)) for length in lengths]
    cut = truncated(*halves, room=room, random=np.random.default_rng(0))
    assert tuple(map(len, cut)) == kept


def test_given_pairs_keep_their_half_or_get_anothers() -> None:
    pairs = [[segment(number, number), segment(1000 + number)] for number in range(2000)]
    instances = list(pair_instances(pairs, max_length=32, random=np.random.default_rng(0)))
    for number, instance in enumerate(instances):
        assert instance.first.ids.tolist() == [number, number]
        assert (instance.second.ids[0] == 1000 + number) == (not instance.is_random)
    share = np.mean([instance.is_random for instance in instances])
    assert abs(share - 0.5) < 5 * 0.5 / 2000**0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello xyz", ["hello", "x ##y ##z"]),
        ("hello, tv.", ["hello", ",", "tv", "."]),
        ("北京 是 中国 首", ["北 京", "是", "中 国", "首"]),
        ("北京是", ["北 京 是"]),
        ("北京tv北", ["北 京", "tv", "北"]),
        ("\uf900北 \uf900", ["[UNK] 北", "[UNK]"]),
        ("[CLS] hello [MASK] [SEP] you [UNK]", ["hello", "you", "[UNK]"]),
        ("", []),
    ],
)
def test_words_begin_after_spaces_and_punctuation(tokenizer: BertTokenizer, text: str, words: list[str]) -> None:
    found = SegmentTokenizer(tokenizer)(text)
    grouped: list[list[str]] = []
    for token_id, starts in zip(found.ids.tolist(), found.starts_word.tolist(), strict=True):
        if starts:
            grouped.append([])
        grouped[-1].append(tokenizer.id_to_token(token_id) or "")
    assert [" ".join(word) for word in grouped] == words


def test_blocks_hold_about_so_many_characters(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(["hello you."] * 25) + "\n\n[MASK]\n", encoding="utf-8")
    found = list(blocks(Corpus([path]), SegmentTokenizer(tokenizer), start=BEGINNING, block_characters=100))
    assert [len(block.documents) for block in found] == [10, 10, 5]
    later = list(blocks(Corpus([path]), SegmentTokenizer(tokenizer), start=found[0].end, block_characters=100))
    assert [len(block.documents) for block in later] == [10, 5]


def test_a_document_larger_than_a_block_is_not_alone_in_it(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(["hello you. " * 30, "hello.", "hello you. " * 30, "you."]), encoding="utf-8")
    found = blocks(Corpus([path]), SegmentTokenizer(tokenizer), start=BEGINNING, block_characters=100)
    assert [len(block.documents) for block in found] == [2, 2]
