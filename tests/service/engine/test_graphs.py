"""The graphs of the trunk, with a plain kernel over offsets and, for a recording, calls of the work itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from bert_core import BertForPreTraining
from bert_core.attention import SelfAttention
from service.engine import graphs
from service.engine.collate import Batch, Bucket, collate
from service.engine.engine import Engine
from service.engine.graphs import Recorder, TrunkGraphs, Work
from service.tasks import Embed, FillMask, NextSentence, Task
from tests.service.engine.test_engine import TASKS, ask, assert_equal
from tests.service.engine.tiny_engine import ENGINE_CONFIG, tiny_engine
from tests.tiny import tiny_config, tiny_model

CPU = torch.device("cpu")
SIZES = [16, 32, 64, 128, 256, 512, 1024]


def kernel(query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, keys: Tensor, most: int, longest: int) -> Tensor:
    """As the one of a GPU, which takes any bound of the lengths, and empty sequences."""
    assert offsets.dtype == keys.dtype == torch.int32
    assert most >= int(offsets.diff().max())
    assert longest >= int(keys.diff().max())
    assert int(keys[-1]) == len(key)
    context = torch.zeros_like(query)
    for own, seen in zip(offsets.unfold(0, 2, 1).tolist(), keys.unfold(0, 2, 1).tolist(), strict=True):
        parts = query[slice(*own)], key[slice(*seen)], value[slice(*seen)]
        q_HQK, k_HLK, v_HLK = (part.transpose(0, 1) for part in parts)
        weights_HQL = (q_HQK @ k_HLK.mT / query.shape[2] ** 0.5).softmax(-1)
        context[slice(*own)] = (weights_HQL @ v_HLK).transpose(0, 1)
    return context


@pytest.fixture(autouse=True)
def attention_over_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    monkeypatch.setattr(SelfAttention, "can_take_varlen", lambda *_args, **_options: True)


class Recordings:
    """Stands in for a recorder: replays by calling the work, which writes into one tensor, as a graph does."""

    def __init__(self, *, fault: Callable[[Tensor], Tensor] = lambda result: result) -> None:
        self.rows: list[int] = []
        self.replays: list[int] = []
        self._fault = fault

    def __call__(self, work: Work) -> Work:
        result = work()
        self.rows.append(len(result))

        def replay() -> Tensor:
            self.replays.append(len(result))
            return result.copy_(self._fault(work()))

        return replay


@pytest.fixture
def model() -> BertForPreTraining:
    return tiny_model(ENGINE_CONFIG)


def recorded(engine: Engine, recorder: Recorder) -> TrunkGraphs:
    engine._graphs.record(recorder)
    return engine._graphs


def test_every_bucket_gets_a_graph_the_largest_first(tmp_path: Path, model: BertForPreTraining) -> None:
    recordings = Recordings()
    found = recorded(tiny_engine(tmp_path, model), recordings)
    assert [bucket.tokens for bucket in found.buckets] == SIZES
    assert [bucket.sequences for bucket in found.buckets] == [2, 4, 8, 16, 32, 64, 128]
    assert recordings.rows == SIZES[::-1]


def test_answers_are_those_of_the_plain_pass(tmp_path: Path, model: BertForPreTraining) -> None:
    engine = tiny_engine(tmp_path, model)
    batches: list[list[Task]] = [
        *([task] for task in TASKS),
        [*TASKS],
        [Embed(text="king", pooling="mean")] * 5,
        [Embed(text="hello world " * number, pooling="mean") for number in range(1, 9)],
    ]
    right = [ask(engine, *batch) for batch in batches]
    recordings = Recordings()
    recorded(engine, recordings)
    recordings.replays.clear()
    for _ in range(2):
        for batch, expected in zip(batches, right, strict=True):
            for one, other in zip(ask(engine, *batch), expected, strict=True):
                assert_equal(one, other)
    assert len(recordings.replays) == 2 * len(batches)
    assert set(recordings.replays) == {16, 32, 64, 128}


def test_a_batch_takes_the_smallest_graph_with_room(tmp_path: Path, model: BertForPreTraining) -> None:
    engine = tiny_engine(tmp_path, model)
    recordings = Recordings()
    recorded(engine, recordings)
    recordings.replays.clear()
    for count in (1, 3, 4, 127, 128):
        ask(engine, *[Embed(text="king", pooling="mean")] * count)
    # By sequences: three tokens each. There is no graph for 128 of them.
    assert recordings.replays == [16, 32, 64, 1024]


def test_a_batch_with_more_tokens_than_any_graph_goes_without(tmp_path: Path, model: BertForPreTraining) -> None:
    engine = tiny_engine(tmp_path, model)
    task = Embed(text="hello world " * 15, pooling="mean")
    assert engine.encode(task).compute_tokens == 32
    (right,) = ask(engine, task)
    recordings = Recordings()
    recorded(engine, recordings)
    recordings.replays.clear()
    for count in (32, 33):
        for result in ask(engine, *[task] * count):
            assert_equal(result, right)
    assert recordings.replays == [1024]


def test_what_a_batch_leaves_behind_is_in_no_later_answer(tmp_path: Path, model: BertForPreTraining) -> None:
    engine = tiny_engine(tmp_path, model)
    found = recorded(engine, Recordings())
    [long], [short] = ([engine.encode(Embed(text=text))] for text in ("a b c d e f", "king"))
    batches = [collate([task], device=CPU, buckets=found.buckets) for task in (long, short)]
    assert len({batch.bucket for batch in batches}) == 1
    with torch.inference_mode():
        found.encode(batches[0])
        after = found.encode(batches[1]).clone()
        again = found.encode(batches[1])
    assert torch.equal(after, again)


def test_fill_mask_and_next_sentence_get_the_rows_they_want(tmp_path: Path, model: BertForPreTraining) -> None:
    engine = tiny_engine(tmp_path, model)
    found = recorded(engine, Recordings())
    tasks: list[Task] = [FillMask(text="a [MASK] b [MASK]"), NextSentence(text="king", text_pair="queen")]
    encoded = [engine.encode(task) for task in tasks]
    batch: Batch = collate(encoded, device=CPU, buckets=found.buckets)
    plain = collate(encoded, device=CPU)
    with torch.inference_mode():
        ours, right = found.encode(batch), model.bert.encode(plain.packed, wanted=plain.wanted)
    assert ours.shape == right.shape == (3, 20)
    assert torch.allclose(ours, right, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda result: result + torch.linspace(0, 1, len(result))[:, None], "its vectors have a cosine of 0."),
        (lambda result: result.roll(1, 0), "its vectors have a cosine of "),
        (lambda result: result * torch.nan, "its vectors have a cosine of nan"),
    ],
)
def test_a_graph_that_strays_is_not_used_and_the_log_says_so(
    tmp_path: Path,
    model: BertForPreTraining,
    fault: Callable[[Tensor], Tensor],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = tiny_engine(tmp_path, model)

    def at_fault(result: Tensor) -> Tensor:
        return fault(result) if len(result) == 64 else result

    with caplog.at_level(logging.WARNING):
        found = recorded(engine, Recordings(fault=at_fault))
    assert [bucket.tokens for bucket in found.buckets] == [size for size in SIZES if size != 64]
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert f"no CUDA graph for batches of up to 64 tokens: {reason}" in record.getMessage()


def test_a_bucket_that_cannot_be_recorded_is_not_used_and_the_log_says_so(
    tmp_path: Path, model: BertForPreTraining, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(work: Work) -> Work:
        if len(work()) > 200:
            raise RuntimeError("operation not permitted when stream is capturing")
        return work

    engine = tiny_engine(tmp_path, model)
    with caplog.at_level(logging.WARNING):
        found = recorded(engine, fails)
    assert [bucket.tokens for bucket in found.buckets] == [16, 32, 64, 128]
    assert len(caplog.records) == 3
    assert "up to 1024 tokens: operation not permitted when stream is capturing" in caplog.text


def test_a_replay_that_does_not_read_its_inputs_is_noticed(
    tmp_path: Path, model: BertForPreTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one would be that was recorded with the values of the first batch."""
    monkeypatch.setattr(graphs, "BUCKET_TOKENS", (32,))

    def frozen(work: Work) -> Work:
        result = work().clone()
        return lambda: result

    assert not recorded(tiny_engine(tmp_path, model), frozen).buckets


def test_without_attention_over_offsets_nothing_is_recorded(
    tmp_path: Path, model: BertForPreTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    recordings = Recordings()
    assert not recorded(tiny_engine(tmp_path, model), recordings).buckets
    assert not recordings.rows


@pytest.mark.parametrize("positions", [3, 41, 2000])
def test_models_of_any_length_get_graphs(tmp_path: Path, positions: int) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(max_position_embeddings=positions)))
    found = recorded(engine, Recordings())
    assert [bucket.tokens for bucket in found.buckets] == SIZES
    task = Embed(text="hello world and more", truncate="right", pooling="mean")
    [batch] = [collate([engine.encode(task)], device=CPU, buckets=found.buckets)]
    assert batch.bucket in (Bucket(16, 2), Bucket(32, 4))
