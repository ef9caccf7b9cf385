from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean, median

import pytest

from bert_core import BertTokenizer
from service.load_generator.texts import COMMON_WORDS, LengthsError, Texts, parse_lengths
from service.settings import default_model_id


def sampled(description: str, *, count: int = 4000, limit: int = 512) -> list[int]:
    lengths, random = parse_lengths(description, limit=limit), Random(5)
    return [lengths.sample(random) for _ in range(count)]


def test_one_length_is_that_length() -> None:
    assert set(sampled("37", count=20)) == {37}


def test_a_range_draws_every_length_alike_and_both_ends() -> None:
    drawn = sampled("16..19")
    assert set(drawn) == {16, 17, 18, 19}
    assert all(drawn.count(length) > 900 for length in range(16, 20))


def test_median_and_mean_are_met_and_the_limit_is_kept() -> None:
    drawn = sampled("47/84", limit=4096)
    assert median(drawn) == pytest.approx(47, rel=0.05)
    assert mean(drawn) == pytest.approx(84, rel=0.05)
    assert max(sampled("47/84", limit=61)) == 61
    assert min(sampled("7/84")) == 6


@pytest.mark.parametrize(
    ("description", "fault"),
    [
        ("", "is not a length"),
        ("5..", "is not a length"),
        ("12-19", "is not a length"),
        ("-4", "is not a length"),
        ("5", "must begin at 6"),
        ("19..12", "not fall"),
        ("84/47", "not fall"),
        ("13..42", "the longest text is 41"),
        ("42", "the longest text is 41"),
        ("42/99", "the longest text is 41"),
    ],
)
def test_lengths_that_no_text_has_are_refused(description: str, fault: str) -> None:
    with pytest.raises(LengthsError, match=fault):
        parse_lengths(description, limit=41)


def test_the_longest_length_may_be_the_limit() -> None:
    assert parse_lengths("13..41", limit=41).limit == 41
    assert parse_lengths("13/99", limit=41).limit == 41


def test_texts_are_distinct_and_the_same_for_the_same_seed() -> None:
    lengths = parse_lengths("6", limit=512)
    first, again, other = (Texts(lengths, seed=seed) for seed in (3, 3, 4))
    texts = [first.text() for _ in range(3000)]
    assert len({" ".join(text.split()[:3]) for text in texts}) == 3000
    assert [again.text() for _ in range(3000)] == texts
    assert [other.text() for _ in range(3000)] != texts


def test_texts_masks_and_pairs_have_their_length_in_the_shipped_vocabulary() -> None:
    tokenizer = BertTokenizer.from_pretrained(default_model_id())
    texts = Texts(parse_lengths("99", limit=512), seed=7)
    for _ in range(13):
        assert len(tokenizer.encode(texts.text(), max_length=512).ids) == 99
        masked = tokenizer.encode(texts.masked("[MASK]"), max_length=512)
        assert len(masked.ids) == 99
        assert len(masked.mask_positions) == 1
        text, text_pair = texts.pair()
        assert (len(text.split()), len(text_pair.split())) == (48, 48)
        assert len(tokenizer.encode_pair(text, text_pair, max_length=512).ids) == 99


def test_the_shortest_text_has_room_for_a_mask_and_a_pair() -> None:
    texts = Texts(parse_lengths("6", limit=512), seed=7)
    assert texts.masked("<mask>").split()[3] == "<mask>"
    text, text_pair = texts.pair()
    assert (len(text.split()), len(text_pair.split())) == (1, 2)


def test_the_words_are_distinct_and_enough_to_count_in_bytes() -> None:
    words = sorted(COMMON_WORDS.split())
    assert len(words) == 256
    assert all(first != second for first, second in pairwise(words))
