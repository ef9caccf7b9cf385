"""The parts of the benchmark that decide what its figures mean."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import MutableSequence
from typing import Any
from xml.etree import ElementTree

import pytest

from bert_core import BertTokenizer
from service.load_generator.load import NOT_SENT
from service.load_generator.measurements import LATENCY, Measurements
from tests.benchmarks.arithmetic import Trunk
from tests.benchmarks.charts import Bar, bar_chart, line_chart
from tests.benchmarks.load import percentile, uncorrected
from tests.benchmarks.make_sample import arrival_order, cut
from tests.benchmarks.overload import level_of
from tests.benchmarks.texts import BLOCK, CHECKPOINT, distinct, masked, mix, of_length, pair, sample
from tests.benchmarks.workers.padded import BATCH_TEXTS, PaddedRunner


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer.from_pretrained(CHECKPOINT)


def lengths(texts: list[str], tokenizer: BertTokenizer) -> list[int]:
    return [len(tokenizer.encode(text, max_length=512).ids) for text in texts]


def test_the_sample_has_the_published_mix(tokenizer: BertTokenizer) -> None:
    found = lengths(sample(512), tokenizer)
    figures = mix(found)
    assert figures.median == 47
    assert figures.mean == pytest.approx(84, abs=1)
    assert sum(length <= 302 for length in found) / 512 == pytest.approx(0.95, abs=0.002)
    assert figures.longest == 511


@pytest.mark.parametrize("block", range(4))
def test_each_block_has_the_mix_of_the_whole(block: int, tokenizer: BertTokenizer) -> None:
    figures = mix(lengths(sample(512)[block * BLOCK : (block + 1) * BLOCK], tokenizer))
    assert figures.median == pytest.approx(47, abs=1)
    assert figures.mean == pytest.approx(83.3, abs=2)


def test_texts_and_what_is_made_of_them_are_distinct() -> None:
    texts = sample(512)
    turned = distinct(texts, count=1100)
    assert turned[:512] == texts
    assert Counter(turned).most_common(1)[0][1] == 1
    assert len({masked(text) for text in texts}) == len({pair(text) for text in texts}) == 512


def test_a_turned_text_has_as_many_tokens(tokenizer: BertTokenizer) -> None:
    texts = sample(BLOCK)
    turned = distinct(texts, count=BLOCK + 17)[BLOCK:]
    assert lengths(turned, tokenizer) == lengths(texts[:17], tokenizer)


def test_masks_and_pairs_keep_the_words() -> None:
    assert masked("a b c d e") == "a b [MASK] d e"
    assert pair("a b c d e") == ("a b c", "d e")


@pytest.mark.parametrize("tokens", [10, 37])
def test_texts_of_one_length(tokens: int, tokenizer: BertTokenizer) -> None:
    texts = of_length(tokens, count=13)
    assert lengths(texts, tokenizer) == [tokens] * 13
    assert len(set(texts)) == 13


@pytest.mark.parametrize("count", [0, BLOCK - 1, BLOCK + 1, 640])
def test_a_sample_that_would_not_have_the_mix_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"^count: {count} is not a multiple of 128 up to 512$"):
        sample(count)


def test_more_distinct_texts_than_there_are() -> None:
    assert distinct(["a b", "c"], count=3) == ["a b", "c", "b a"]
    with pytest.raises(ValueError, match="4 distinct texts"):
        distinct(["a b", "c"], count=4)


def test_the_order_of_arrival_spreads_lengths_over_blocks() -> None:
    class Reversing(random.Random):
        def shuffle(self, x: MutableSequence[Any]) -> None:
            x.reverse()

    order = arrival_order(3 * BLOCK, randomness=Reversing())
    assert sorted(order) == list(range(3 * BLOCK))
    assert order[:2] == [381, 378]
    assert order[BLOCK] == 382


def test_a_cut_text_ends_at_a_word_and_the_next_begins_at_a_sentence(tokenizer: BertTokenizer) -> None:
    corpus = "The cat sat on the mat. The dog ran.\n\nA new day came. It was cold."
    assert cut(corpus, [6, 6, 9], tokenizer=tokenizer) == ["The cat sat on", "The dog ran.", "A new day came. It was"]


def test_arithmetic() -> None:
    trunk = Trunk(layers=6, hidden=384, middle=1536)
    assert trunk.products_per_token == 21_233_664
    assert trunk.attention(7) == 6 * 4 * 384 * 7 * 7
    assert trunk.operations([3, 5]) == 8 * 21_233_664 + 6 * 4 * 384 * (9 + 25)


def corrected(latencies: dict[int, int], *, interval: int) -> dict[int, int]:
    """What wrk makes of latencies: for each of at least twice the interval, one every interval below it."""
    counts = Counter(latencies)
    for latency, count in latencies.items():
        if latency >= 2 * interval:
            for added in range(latency - interval, interval, -interval):
                counts[added] += count
    return dict(counts)


def test_additions_to_latencies_are_taken_back() -> None:
    latencies = {3: 5, 9: 2, 20: 1, 24: 4, 45: 2, 70: 1}
    made_up = corrected(latencies, interval=10)
    assert sum(made_up.values()) > sum(latencies.values())
    assert uncorrected(made_up, interval=10) == latencies


def test_percentiles() -> None:
    counts = {10: 1, 30: 2, 20: 1}
    assert [percentile(counts, percent) for percent in (25, 26, 50, 51, 100)] == [10, 20, 20, 30, 30]
    with pytest.raises(ValueError, match="empty"):
        percentile({}, 50)


@pytest.mark.parametrize("sort", [False, True])
def test_padded_batches_give_answers_in_the_order_of_the_texts(*, sort: bool) -> None:
    import numpy as np

    from tests.benchmarks.workers.protocol import FloatArray

    texts = ["x" * (n * 7 % 41 + 1) for n in range(BATCH_TEXTS + 5)]
    batches: list[list[str]] = []

    def forward(batch: list[str]) -> FloatArray:
        batches.append(batch)
        return np.array([[len(text)] for text in batch], dtype=np.float32)

    runner = PaddedRunner(tokenize=list, forward=forward, sort=sort)
    assert runner.embed(runner.encode(texts))[:, 0].tolist() == [len(text) for text in texts]
    assert [len(batch) for batch in batches] == [BATCH_TEXTS, 5]
    assert [text for batch in batches for text in batch] == (sorted(texts, key=len) if sort else texts)


def test_charts_are_svg_that_shows_every_value() -> None:
    bars = bar_chart("A & B", [Bar("slow <1>", 12, ours=False), Bar("fast", 345.4, ours=True)], note="here")
    lines = line_chart("L", {"a": {16: 10.0, 64: 20.0}, "b": {16: 5.0}}, note="", x_label="tokens")
    texts = [element.text for element in ElementTree.fromstring(bars).iter() if element.tag.endswith("text")]
    assert texts == ["A & B", "here", "fast", "345", "slow <1>", "12"]
    shown = [element.text for element in ElementTree.fromstring(lines).iter() if element.tag.endswith("text")]
    assert {"a", "b", "16", "64", "20", "tokens"} <= set(shown)


def test_an_answer_after_the_deadline_counts_as_late_and_a_request_never_sent_as_the_client_s() -> None:
    measured = Measurements()
    measured.times_ms[LATENCY].extend([300.0, 100.0, 2000.1, 2000.0])
    measured.failures.update({"429 Overloaded": 7, "504 Timeout": 2, NOT_SENT: 5, "500 Backend": 1, "lost": 3})
    level = level_of(measured, factor=2.0, seconds=2.0, deadline_seconds=2.0, cores=(0.5, 1.5))
    assert (level.good, level.refused, level.late, level.other, level.unsent) == (1.5, 3.5, 1.5, 2.0, 2.5)
    assert (level.offered, level.client_cores, level.server_cores) == (11, 0.5, 1.5)
    assert (level.p50, level.p99) == (300.0, 2000.1)
