from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from tokenizers import BertWordPieceTokenizer
from torch import Tensor

from bert_core import BertForPreTraining, CheckpointError, save_pretrained
from bert_core.heads import Heads
from bert_core.packing import PackedTokens, WantedRows
from bert_core.tokenizer import BertTokenizer
from service.engine.encoding import EncodedTask
from service.engine.engine import Engine
from service.engine.sentence_files import SentenceFiles
from service.errors import BackendFailure, Unhealthy
from service.tasks import (
    Embed,
    EmbedAll,
    EmbedAllResult,
    EmbedResult,
    EmbedSparse,
    EmbedSparseResult,
    FillMask,
    FillMaskResult,
    FillNextMask,
    NextMaskResult,
    NextSentence,
    NextSentenceResult,
    Pooling,
    Task,
)
from tests.service.engine.tiny_engine import ENGINE_CONFIG, tiny_engine
from tests.tiny import TINY_VOCABULARY, tiny_config, tiny_model, write_tiny_vocabulary

TOLERANCE = 1e-5

TASKS: list[Task] = [
    FillMask(text="paris is the [MASK] of france.", top_k=7),
    NextSentence(text="i like cookies", text_pair="do you like them?"),
    Embed(text="hello world", pooling="mean"),
    Embed(text="apple tv", pooling="max", normalize=False),
    Embed(text="king of france", pooling="cls", dimensions=11),
    Embed(text="the queen", pooling="pooler"),
    FillMask(text="[MASK] is a [MASK]"),
    FillMask(text="how are [MASK]?", targets=("you", "them", "xyz")),
    EmbedAll(text="the capital"),
    EmbedSparse(text="cookies, do you?"),
    FillNextMask(text="[MASK] is a [MASK] of [MASK]", filled=(None, 40, None), top_k=3),
]


@pytest.fixture(scope="module")
def model() -> BertForPreTraining:
    return tiny_model(ENGINE_CONFIG)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory, model: BertForPreTraining) -> Engine:
    return tiny_engine(tmp_path_factory.mktemp("tiny"), model)


def ask(engine: Engine, *tasks: Task) -> list[Any]:
    return list(engine.run([engine.encode(task) for task in tasks]))


def assert_equal(first: object, second: object) -> None:
    """Equal to the tolerance, field by field."""
    if isinstance(first, EmbedResult) and isinstance(second, EmbedResult):
        assert np.abs(first.vector - second.vector).max() <= TOLERANCE
        assert (first.tokens, first.truncated) == (second.tokens, second.truncated)
    elif isinstance(first, NextSentenceResult) and isinstance(second, NextSentenceResult):
        assert first.logits == pytest.approx(second.logits, abs=1e-4)
        assert first.is_next == pytest.approx(second.is_next, abs=TOLERANCE)
        assert first.not_next == pytest.approx(second.not_next, abs=TOLERANCE)
    elif isinstance(first, EmbedAllResult) and isinstance(second, EmbedAllResult):
        assert np.abs(first.vectors - second.vectors).max() <= TOLERANCE
    elif isinstance(first, EmbedSparseResult) and isinstance(second, EmbedSparseResult):
        assert first.indices.tolist() == second.indices.tolist()
        assert np.abs(first.values - second.values).max() <= 1e-4
    elif isinstance(first, NextMaskResult) and isinstance(second, NextMaskResult):
        assert (first.mask, first.masks) == (second.mask, second.masks)
        assert [token for token, _ in first.candidates] == [token for token, _ in second.candidates]
        scores = [score for _, score in second.candidates]
        assert [score for _, score in first.candidates] == pytest.approx(scores, abs=1e-4)
    else:
        assert isinstance(first, FillMaskResult)
        assert isinstance(second, FillMaskResult)
        for one, other in zip(first.masks, second.masks, strict=True):
            assert one.position == other.position
            assert [found.token_str for found in one.predictions] == [found.token_str for found in other.predictions]
            scores = [found.score for found in other.predictions]
            assert [found.score for found in one.predictions] == pytest.approx(scores, abs=TOLERANCE)


def test_passes_that_run_at_once_give_the_answers_of_one_after_the_other(engine: Engine) -> None:
    batches = [[engine.encode(task) for task in TASKS[first:]] for first in range(len(TASKS))]
    expected = [engine.run(batch) for batch in batches]
    threads_of_passes = []

    def run(batch: Sequence[EncodedTask]) -> list[Any]:
        results = [engine.run(batch, threads=1) for _ in range(5)]
        threads_of_passes.append(torch.get_num_threads())
        return results[-1]

    with ThreadPoolExecutor(max_workers=4) as pool:
        found = list(pool.map(run, batches))
    for results, right in zip(found, expected, strict=True):
        for result, answer in zip(results, right, strict=True):
            assert_equal(result, answer)
    assert set(threads_of_passes) == {1}
    assert torch.get_num_threads() == engine.threads


def padded(engine: Engine, task: Task) -> tuple[Tensor, Tensor]:
    """Ids and segments of a task, `[1, L]`, for a call of the library."""
    sequence = engine.encode(task).sequences[0]
    return torch.tensor([sequence.ids]), torch.tensor([sequence.segment_ids])


def test_all_tasks_share_one_pass_and_each_gets_its_own_answer(engine: Engine, model: BertForPreTraining) -> None:
    alone = [ask(engine, task)[0] for task in TASKS]
    encode = model.bert.encode
    with mock.patch.object(model.bert, "encode", side_effect=encode) as trunk:
        together = ask(engine, *TASKS)
    assert trunk.call_count == 1
    for one, other in zip(together, alone, strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "pooler"])
def test_embeddings_equal_a_plain_call(engine: Engine, model: BertForPreTraining, pooling: Pooling) -> None:
    task = Embed(text="paris is the capital of france", pooling=pooling, normalize=False)
    ids, segments = padded(engine, task)
    with torch.no_grad():
        output = model.bert(ids, token_type_ids=segments, attention_mask=torch.ones_like(ids))
    hidden_LD = output.last_hidden_state[0]
    pooler_output = output.pooler_output
    assert pooler_output is not None
    expected = {
        "cls": hidden_LD[0],
        "mean": hidden_LD.mean(0),
        "max": hidden_LD.max(0).values,
        "pooler": pooler_output[0],
    }[pooling].numpy()
    (raw,) = ask(engine, task)
    assert np.abs(raw.vector - expected).max() <= TOLERANCE
    assert raw.vector.dtype == np.float32
    (unit, short) = ask(
        engine, Embed(text=task.text, pooling=pooling), Embed(text=task.text, pooling=pooling, dimensions=7)
    )
    assert np.abs(unit.vector - expected / np.linalg.norm(expected)).max() <= TOLERANCE
    assert np.abs(short.vector - expected[:7] / np.linalg.norm(expected[:7])).max() <= TOLERANCE


def test_token_vectors_equal_a_plain_call(engine: Engine, model: BertForPreTraining) -> None:
    texts = ["paris is the capital of france", "hello"]
    for result, text in zip(ask(engine, *[EmbedAll(text=text) for text in texts]), texts, strict=True):
        ids, segments = padded(engine, EmbedAll(text=text))
        with torch.no_grad():
            hidden_LD = model.bert(ids, token_type_ids=segments).last_hidden_state[0].numpy()
        assert np.abs(result.vectors - hidden_LD).max() <= TOLERANCE
        assert result.tokens == len(hidden_LD)


def test_the_next_mask_is_the_most_certain_given_those_that_are_filled(
    engine: Engine, model: BertForPreTraining
) -> None:
    king = engine.encode(Embed(text="king")).sequences[0].ids[1]
    filled: list[int | None] = [None, None, None]
    for _ in range(3):
        task = FillNextMask(text="[MASK] is a [MASK] of [MASK]", filled=tuple(filled), top_k=7)
        rows = log_probabilities(engine, model, task)[:, :99]
        open_masks = [mask for mask, token in enumerate(filled) if token is None]
        best = rows.max(1).values.argmax()
        (result,) = ask(engine, task)
        assert (result.mask, result.masks) == (open_masks[best], 3)
        expected = rows[best].topk(7)
        assert [token for token, _ in result.candidates] == expected.indices.tolist()
        assert [score for _, score in result.candidates] == pytest.approx(expected.values.tolist(), abs=1e-4)
        filled[result.mask] = king


def test_next_sentence_equals_a_plain_call(engine: Engine, model: BertForPreTraining) -> None:
    task = NextSentence(text="how are you", text_pair="hello world")
    ids, segments = padded(engine, task)
    assert segments[0].tolist() == [0] * 5 + [1] * 3
    with torch.no_grad():
        logits = model(ids, token_type_ids=segments).seq_relationship_logits[0]
    (result,) = ask(engine, task)
    assert result.logits == pytest.approx(logits.tolist(), abs=1e-4)
    assert (result.is_next, result.not_next) == pytest.approx(logits.softmax(0).tolist(), abs=TOLERANCE)


def log_probabilities(engine: Engine, model: BertForPreTraining, task: Task, *, sequence: int = 0) -> Tensor:
    """Over the whole matrix, at each mask of one of the task's sequences, by a plain call."""
    encoded = engine.encode(task).sequences[sequence]
    with torch.no_grad():
        logits = model(torch.tensor([encoded.ids])).prediction_logits
    assert logits is not None
    return torch.as_tensor(logits[0, encoded.wanted].log_softmax(-1))


def test_predictions_are_the_best_of_the_whole_softmax(engine: Engine, model: BertForPreTraining) -> None:
    task = FillMask(text="[MASK] is a [MASK]", top_k=9)
    (result,) = ask(engine, task)
    expected = log_probabilities(engine, model, task).exp()
    assert [mask.position for mask in result.masks] == [1, 4]
    for mask, row in zip(result.masks, expected, strict=True):
        best = row[:99].topk(9)
        assert [found.token for found in mask.predictions] == best.indices.tolist()
        assert [found.score for found in mask.predictions] == pytest.approx(best.values.tolist(), abs=TOLERANCE)


def test_ids_past_the_vocabulary_are_never_returned_but_count_in_the_softmax(tmp_path: Path) -> None:
    model = tiny_model(ENGINE_CONFIG, seed=3)
    assert model.mlm is not None
    with torch.no_grad():
        model.mlm.decoder.bias[99:] = 50.0
    (result,) = ask(tiny_engine(tmp_path, model), FillMask(text="[MASK]", top_k=103))
    (mask,) = result.masks
    assert sorted(found.token for found in mask.predictions) == list(range(99))
    assert max(found.score for found in mask.predictions) < 1e-10


def test_ids_that_the_vocabulary_skips_are_never_returned(tmp_path: Path) -> None:
    model = tiny_model(ENGINE_CONFIG)
    assert model.mlm is not None
    with torch.no_grad():
        model.mlm.decoder.bias[50] = 50.0
    vocabulary = {piece: number for number, piece in enumerate(TINY_VOCABULARY) if number != 50}
    BertWordPieceTokenizer(vocabulary).save(str(tmp_path / "tokenizer.json"))
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    engine = Engine(model, tokenizer=tokenizer, sentence_files=SentenceFiles(), model_id="tiny")
    (result,) = ask(engine, FillMask(text="[MASK]", top_k=500))
    assert sorted(found.token for found in result.masks[0].predictions) == [*range(50), *range(51, 99)]


def test_targets_are_scored_in_the_whole_softmax(engine: Engine, model: BertForPreTraining) -> None:
    task = FillMask(text="the [MASK] of france", targets=("king", "Queen", "xyz", "queen", "ab", "cd"))
    single = log_probabilities(engine, model, task)[0]
    double = log_probabilities(engine, model, task, sequence=1)
    triple = log_probabilities(engine, model, task, sequence=2)
    tokens = {word: engine.encode(FillMask(text="[MASK]", targets=(word,))).targets for word in ("xyz", "ab", "cd")}

    def mean(word: str, rows: Tensor) -> float:
        targets = tokens[word]
        assert targets is not None
        return math.exp(sum(float(rows[n, token]) for n, token in enumerate(targets[0].ids)) / len(rows))

    targets = engine.encode(task).targets
    assert targets is not None
    expected = {
        "king": math.exp(float(single[targets[0].ids[0]])),
        "queen": math.exp(float(single[targets[1].ids[0]])),
        "xyz": mean("xyz", triple),
        "ab": mean("ab", double),
        "cd": mean("cd", double),
    }
    (result,) = ask(engine, task)
    found = {prediction.token_str: prediction for prediction in result.masks[0].predictions}
    assert {word: prediction.score for word, prediction in found.items()} == pytest.approx(expected, abs=1e-6)
    scores = [prediction.score for prediction in result.masks[0].predictions]
    assert scores == sorted(scores, reverse=True)
    assert found["king"].tokens is None
    assert found["xyz"].token is None
    assert len(found["xyz"].tokens) == 3
    assert found["xyz"].sequence == "the xyz of france"


def test_targets_with_several_masks_and_top_k(engine: Engine, model: BertForPreTraining) -> None:
    task = FillMask(text="[MASK] and [MASK]", targets=("king", "queen", "paris"), top_k=2)
    expected = log_probabilities(engine, model, task).exp()
    targets = engine.encode(task).targets
    assert targets is not None
    ids = [target.ids[0] for target in targets]
    (result,) = ask(engine, task)
    for mask, row in zip(result.masks, expected, strict=True):
        best = row[ids].topk(2)
        assert [found.token for found in mask.predictions] == [ids[index] for index in best.indices.tolist()]


@pytest.mark.parametrize("rows_at_once", [512, 4])
def test_targets_of_many_requests_in_one_pass_are_those_of_each_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    tasks = [
        FillMask(text="the [MASK] is", targets=("king", "queen")),
        FillMask(text="[MASK]", top_k=4),
        FillMask(text="[MASK] and [MASK] and [MASK]", targets=("paris", "of"), top_k=1),
        FillMask(text="how [MASK]?", targets=("xyz", "are", "ab", "king", "bc")),
        FillMask(text="[MASK] you", targets=("how", "ab")),
    ]
    alone = [ask(engine, task)[0] for task in tasks]
    monkeypatch.setattr("service.engine.fill_mask.ROWS_AT_ONCE", rows_at_once)
    for one, other in zip(ask(engine, *tasks), alone, strict=True):
        assert_equal(one, other)


def test_more_mask_rows_than_are_scored_at_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    task = FillMask(text="[MASK] of the [MASK]: [MASK]", top_k=3)
    (whole,) = ask(engine, task)
    monkeypatch.setattr("service.engine.fill_mask.ROWS_AT_ONCE", 2)
    (parts,) = ask(engine, task)
    assert_equal(parts, whole)


def failing_on(model: BertForPreTraining, token: int) -> Any:
    encode = model.bert.encode

    def guarded(packed: Any, *, wanted: Any) -> Tensor:
        if (packed.ids_T == token).any():
            raise RuntimeError("boom")
        return encode(packed, wanted=wanted)

    return mock.patch.object(model.bert, "encode", side_effect=guarded)


@pytest.mark.parametrize("guilty", [0, 4, 7])
def test_only_the_item_that_fails_fails(engine: Engine, model: BertForPreTraining, guilty: int) -> None:
    tasks: list[Task] = [*TASKS]
    tasks[guilty] = Embed(text="hello 7")
    with failing_on(model, engine.encode(Embed(text="7")).sequences[0].ids[1]) as trunk:
        results = ask(engine, *tasks)
    assert isinstance(results[guilty], BackendFailure)
    assert "boom" not in str(results[guilty])
    for number, (result, task) in enumerate(zip(results, tasks, strict=True)):
        if number != guilty:
            assert_equal(result, ask(engine, task)[0])
    assert trunk.call_count <= 2 * math.ceil(math.log2(len(tasks))) + 1


def test_where_memory_runs_out_passes_are_smaller_for_a_while(tmp_path: Path) -> None:
    model = tiny_model(ENGINE_CONFIG)
    engine = tiny_engine(tmp_path, model)
    encoded = [engine.encode(Embed(text="hello world")) for _ in range(8)]
    right = engine.run(encoded)
    tokens = encoded[0].compute_tokens
    encode = model.bert.encode
    most = 3 * tokens
    lengths = []

    def small(packed: PackedTokens, *, wanted: WantedRows | None) -> Tensor:
        lengths.append(sum(packed.lengths))
        if sum(packed.lengths) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(packed, wanted=wanted)

    with mock.patch.object(model.bert, "encode", side_effect=small):
        for result, expected in zip(engine.run(encoded), right, strict=True):
            assert_equal(result, expected)
        assert lengths == [8 * tokens, 4 * tokens, 2 * tokens, 2 * tokens, 4 * tokens, 2 * tokens, 2 * tokens]
        lengths.clear()
        engine.run(encoded)
        assert lengths == [2 * tokens] * 4
        most = 8 * tokens
        for _ in range(20):
            lengths.clear()
            engine.run(encoded)
        assert lengths == [8 * tokens]


def test_a_text_that_memory_cannot_hold_fails_alone(tmp_path: Path) -> None:
    model = tiny_model(ENGINE_CONFIG)
    engine = tiny_engine(tmp_path, model)
    with mock.patch.object(model.bert, "encode", side_effect=torch.OutOfMemoryError("CUDA out of memory")):
        [failure] = ask(engine, Embed(text="hello"))
    assert isinstance(failure, BackendFailure)
    assert isinstance(ask(engine, Embed(text="hello"))[0], EmbedResult)


def test_a_device_that_fails_at_everything_is_beyond_recovery(tmp_path: Path) -> None:
    engine = tiny_engine(tmp_path, tiny_model(ENGINE_CONFIG))
    encoded = [engine.encode(task) for task in TASKS]
    with (
        mock.patch.object(engine, "_device", torch.device("cuda")),
        mock.patch.object(engine, "_pass", side_effect=RuntimeError("CUDA error: device-side assert triggered")),
        mock.patch("torch.cuda.synchronize", side_effect=[None, RuntimeError("CUDA error")]) as synchronize,
        pytest.raises(Unhealthy, match="restart"),
    ):
        engine.run(encoded)
    assert synchronize.call_count == 2


@pytest.mark.parametrize(
    "guilty",
    [Embed(text="hello 7"), FillMask(text="7 [MASK]"), FillMask(text="7 [MASK]", targets=("king",)),
     NextSentence(text="7", text_pair="a"), EmbedAll(text="a 7"), EmbedSparse(text="7 a"),
     FillNextMask(text="7 [MASK]")],
)  # fmt: skip
def test_a_value_that_is_not_finite_fails_its_item_alone(tmp_path: Path, guilty: Task) -> None:
    model = tiny_model(ENGINE_CONFIG)
    engine = tiny_engine(tmp_path, model)
    seven = engine.encode(Embed(text="7")).sequences[0].ids[1]
    clean = [ask(engine, task)[0] for task in TASKS]
    with torch.no_grad():
        model.bert.embeddings.token.weight[seven] = torch.nan
    results = ask(engine, *TASKS[:3], guilty, *TASKS[3:])
    assert isinstance(results.pop(3), BackendFailure)
    for result, expected in zip(results, clean, strict=True):
        assert_equal(result, expected)


@pytest.mark.parametrize(
    ("heads", "files", "asked", "pooling"),
    [
        (Heads(), None, None, "pooler"),
        (Heads(pooler=False, nsp=False), None, None, "mean"),
        (Heads(), "cls", None, "cls"),
        (Heads(), "mean", "max", "max"),
    ],
)
def test_the_default_pooling_follows_the_checkpoint(
    tmp_path: Path, heads: Heads, files: Pooling | None, asked: Pooling | None, pooling: Pooling
) -> None:
    engine = tiny_engine(tmp_path, tiny_model(heads=heads), pooling=asked, sentence_files=SentenceFiles(pooling=files))
    assert engine.info.pooling == pooling
    assert_equal(*ask(engine, Embed(text="king"), Embed(text="king", pooling=pooling)))


def test_a_pooling_that_the_checkpoint_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="pooling: this checkpoint holds no pooler"):
        tiny_engine(tmp_path, tiny_model(heads=Heads(pooler=False, nsp=False)), pooling="pooler")


@pytest.mark.parametrize("heads", [Heads(), Heads(mlm=False), Heads(pooler=False, nsp=False)])
def test_warm_up_runs_every_head_and_leaves_room_for_the_longest_text(tmp_path: Path, heads: Heads) -> None:
    engine = tiny_engine(tmp_path, tiny_model(heads=heads))
    with mock.patch.object(engine, "_tokens_per_second", return_value=20_000.0):
        assert engine.warm_up() == 3000
    with mock.patch.object(engine, "_tokens_per_second", return_value=10.0):
        assert engine.warm_up() == 1024
    assert engine.warm_up() >= 1024


def test_the_budget_of_a_pass_has_room_for_the_longest_text(tmp_path: Path) -> None:
    engine = tiny_engine(tmp_path, tiny_model(tiny_config(max_position_embeddings=1500)))
    with mock.patch.object(engine, "_tokens_per_second", return_value=10.0):
        assert engine.warm_up() == 1500


@pytest.mark.parametrize("positions", [3, 4, 5])
def test_the_shortest_models_warm_up(tmp_path: Path, positions: int) -> None:
    assert tiny_engine(tmp_path, tiny_model(tiny_config(max_position_embeddings=positions))).warm_up() >= 1024


def test_a_model_without_room_for_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="max_position_embeddings: 2 leaves no room"):
        tiny_engine(tmp_path, tiny_model(tiny_config(max_position_embeddings=2)))


def test_a_model_that_cannot_answer_does_not_warm_up(tmp_path: Path) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.bert.embeddings.segment.weight[0] = torch.inf
    with pytest.raises(RuntimeError, match="the model cannot answer"):
        tiny_engine(tmp_path, model).warm_up()


def write_checkpoint(folder: Path, **changes: Any) -> BertForPreTraining:
    model = tiny_model(tiny_config(**changes))
    save_pretrained(model, folder)
    write_tiny_vocabulary(folder)
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_torch_multi_head": True},
        {"norm_placement": "pre", "pooler_type": "all_token_average", "pair_segment_ids": (1, 2)},
        {"position_embedding_type": "relative_key_query"},
        {"position_embedding_type": "sinusoidal", "pruned_heads": {1: (0, 2)}},
    ],
)
def test_a_saved_checkpoint_of_any_kind_is_served(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = tmp_path / "saved"
    model = write_checkpoint(folder, **changes)
    parameters = model.num_parameters()
    loaded = Engine.load(folder, device="cpu", dtype="float32")
    (tmp_path / "here").mkdir()
    model.bert.drop_reference_attention()
    here = tiny_engine(tmp_path / "here", model)
    for one, other in zip(ask(loaded, *TASKS), ask(here, *TASKS), strict=True):
        assert_equal(one, other)
    assert loaded.info.model_id == str(folder)
    assert loaded.info.parameters == parameters
    assert (loaded.info.device, loaded.info.dtype) == ("cpu", "float32")


def test_everything_wrong_with_a_folder_is_told_together(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(CheckpointError) as caught:
        Engine.load(tmp_path, device="cpu", dtype="float32")
    text = str(caught.value)
    assert all(name in text for name in ("model.safetensors", "[MASK]", "modules.json"))


def test_a_batch_gives_as_many_results_as_tasks_in_their_order(engine: Engine) -> None:
    texts = [f"{'a ' * (number * 7 % 23)}{number % 10}" for number in range(40)]
    tasks: Sequence[Task] = [Embed(text=text, pooling="mean") for text in texts]
    for result, task in zip(ask(engine, *tasks), tasks, strict=True):
        assert_equal(result, ask(engine, task)[0])


def test_the_tokenizer_is_the_checkpoints(engine: Engine, tmp_path: Path) -> None:
    write_tiny_vocabulary(tmp_path)
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert engine.info.vocab_size == tokenizer.vocab_size == 99
    assert engine.info.mask_token == "[MASK]"


@pytest.mark.parametrize(
    ("logits", "is_next"),
    [
        ((5.2880, -6.0952), 0.9999886),
        ((3.5181, -2.2946), 0.9970196),
        ((-0.0728, 0.1863), 0.4355850),
        ((0.3190, -0.1528), 0.6158097),
    ],
)
def test_the_first_of_the_two_logits_is_that_of_is_next(
    tmp_path: Path, logits: tuple[float, float], is_next: float
) -> None:
    model = tiny_model(ENGINE_CONFIG)
    assert model.nsp is not None
    with torch.no_grad():
        model.nsp.classifier.weight.zero_()
        model.nsp.classifier.bias.copy_(torch.tensor(logits))
    (result,) = ask(tiny_engine(tmp_path, model), NextSentence(text="a", text_pair="b"))
    assert result.is_next == pytest.approx(is_next, abs=1e-7)
    assert result.not_next == pytest.approx(1 - is_next, abs=1e-7)
    assert result.logits == pytest.approx(logits)


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_a_padding_token_that_is_written_in_a_text_is_a_token(
    engine: Engine, model: BertForPreTraining, pooling: Pooling
) -> None:
    task = Embed(text="hello [PAD] [PAD]", pooling=pooling, normalize=False)
    ids, segments = padded(engine, task)
    with torch.no_grad():
        hidden = model.bert(ids, attention_mask=torch.ones_like(ids), token_type_ids=segments).last_hidden_state[0]
    expected = {"mean": hidden.mean(0), "max": hidden.max(0).values, "cls": hidden[0]}[pooling]
    (result,) = ask(engine, task)
    assert np.abs(result.vector - expected.numpy()).max() <= TOLERANCE
    assert result.tokens == 5


def test_memory_does_not_grow_with_the_shapes_that_have_been_seen(engine: Engine) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    generator = random.Random(7)
    sizes = []
    for request in range(1, 501):
        batch = [Embed(text="a " * generator.randint(1, 39)) for _ in range(generator.randint(1, 32))]
        ask(engine, *batch)
        if request % 50 == 0:
            sizes.append(resident_bytes())
    assert sizes[-1] < 1.05 * sizes[len(sizes) // 2]
