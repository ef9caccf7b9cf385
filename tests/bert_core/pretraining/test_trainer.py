"""A run goes on where it was ended, and several processes do what one does."""

from __future__ import annotations

import copy
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bert_core.checkpoint import load_pretrained
from bert_core.config import BertConfig
from bert_core.heads import Heads
from bert_core.pretraining.objective import Objective
from bert_core.pretraining.optimization import Optimization
from bert_core.pretraining.options import TrainingOptions
from bert_core.pretraining.ranks import Ranks
from bert_core.pretraining.signals import stops_on_signals
from bert_core.pretraining.starting_model import StartingModel, from_checkpoint, from_config
from bert_core.pretraining.stream import Position
from bert_core.pretraining.trainer import Trainer
from bert_core.pretraining.training_files import STATE, TrainingError, checkpoints, latest_checkpoint
from tests.bert_core.pretraining.language import write_corpus, write_vocabulary
from tests.tiny import tiny_config, tiny_model

ALONE = Ranks(rank=0, count=1, device=torch.device("cpu"))
ROOT = Path(__file__).parents[3]


def options(folder: Path, **changes: Any) -> TrainingOptions:
    corpus = folder / "text.txt"
    if not corpus.exists():
        write_corpus(corpus, documents=40, seed=0)
    given: dict[str, Any] = {
        "corpus": (corpus,),
        "output": folder / "output",
        "max_length": 40,
        "batch_tokens": 400,
        "max_steps": 12,
        "precision": "float32",
        "evaluate_every": 0,
        "save_every": 0,
        "log_every": 1,
        "optimization": Optimization(learning_rate=1e-3),
    }
    return TrainingOptions(**given | changes)


def start(folder: Path, *, config: BertConfig | None = None) -> StartingModel:
    vocabulary = write_vocabulary(folder / "vocabulary")
    return from_config(config or tiny_config(), vocabulary, device=torch.device("cpu"), seed=0)


def trained(folder: Path, given: TrainingOptions, *, resume: bool = False) -> Trainer:
    trainer = Trainer(start(folder), given, ranks=ALONE)
    assert trainer.resume() == resume
    trainer.run()
    return trainer


def log(folder: Path) -> list[dict[str, Any]]:
    """Without what depends on the clock."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    return [{n: v for n, v in entry.items() if n not in ("seconds", "tokens_per_second")} for entry in entries]


def test_a_resumed_run_is_the_unbroken_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout, masks, pairs, optimizer and rates: to the last bit."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    trained(tmp_path, options(tmp_path, output=whole, accumulate=2))
    ended = Trainer(start(tmp_path), options(tmp_path, output=broken, accumulate=2, save_every=3), ranks=ALONE)
    saves = []
    save = ended._files.save

    def save_and_end(*arguments: Any, **named: Any) -> Path:
        saves.append(save(*arguments, **named))
        if len(saves) == 2:
            raise KeyboardInterrupt
        return saves[-1]

    monkeypatch.setattr(ended._files, "save", save_and_end)
    with pytest.raises(KeyboardInterrupt):
        ended.run()
    with (broken / "log.jsonl").open("a") as file:
        file.write('{"step": 7, "mlm_loss": 1.0}\n{"step": 8, "cut o')  # as a kill would leave it
    trained(tmp_path, options(tmp_path, output=broken, accumulate=2, save_every=3), resume=True)
    assert log(broken) == log(whole)
    for name, values in load_pretrained(whole).state_dict().items():
        assert values.equal(load_pretrained(broken).state_dict()[name]), name


def test_losses_are_means_over_all_batches_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each masked token weighs the same, and each pair, however the batches were cut."""
    config = replace(tiny_config(), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    given = options(tmp_path, accumulate=3, max_steps=1, optimization=Optimization(clip=0))
    trainer = Trainer(start(tmp_path, config=config), given, ranks=ALONE)
    model = copy.deepcopy(trainer._model)
    batches = [batch for batch, _ in itertools.islice(trainer._stream.batches(Position()), 3)]
    assert len({len(batch.labels_M) for batch in batches}) > 1
    monkeypatch.setattr(trainer._optimizer, "step", lambda: None)
    monkeypatch.setattr(trainer._optimizer, "zero_grad", lambda: None)
    trainer.run()
    found = [Objective(model)(batch) for batch in batches]
    masked, pairs = (sum(counts) for counts in zip(*((len(b.labels_M), b.sequences) for b in batches), strict=True))
    prediction_loss = torch.stack([sums.prediction_loss for sums in found]).sum()
    next_loss = torch.stack([sums.next_loss for sums in found]).sum()
    (prediction_loss / masked + next_loss / pairs).backward()
    for (name, parameter), own in zip(model.named_parameters(), trainer._model.parameters(), strict=True):
        assert parameter.grad is not None
        assert own.grad is not None
        assert torch.allclose(own.grad, parameter.grad, rtol=1e-3, atol=1e-6), name


def test_two_processes_do_what_one_does_with_twice_the_batches(tmp_path: Path) -> None:
    config = replace(tiny_config(), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()), "utf-8")
    write_corpus(tmp_path / "text.txt", documents=40, seed=0)
    write_vocabulary(tmp_path / "vocabulary")
    command = [
        *("-m", "bert_core.pretraining", str(tmp_path / "text.txt"), "--config", str(tmp_path / "config.json")),
        *("--vocabulary", str(tmp_path / "vocabulary"), "--max-steps", "5", "--batch-tokens", "400"),
        *("--max-length", "40", "--precision", "float32", "--device", "cpu", "--log-every", "1"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    one = [sys.executable, *command, "--accumulate", "2", "--output", str(tmp_path / "one")]
    subprocess.run(one, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=100)
    torchrun = (*("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"), *command)
    two = [sys.executable, *torchrun, "--output", str(tmp_path / "two")]
    subprocess.run(two, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=100)
    one_log, two_log = log(tmp_path / "one"), log(tmp_path / "two")
    assert len(one_log) == len(two_log) == 5
    for alone, together in zip(one_log, two_log, strict=True):
        assert together == pytest.approx(alone, rel=1e-4)


def test_the_last_line_of_the_log_is_returned(tmp_path: Path) -> None:
    given = options(tmp_path, max_steps=4, evaluate_every=4, log_every=4)
    assert "mlm_loss" in Trainer(start(tmp_path), given, ranks=ALONE).run()


def test_the_first_limit_ends_the_run(tmp_path: Path) -> None:
    by_steps = trained(tmp_path, options(tmp_path, output=tmp_path / "a", max_steps=3, epochs=50, max_minutes=50))
    assert by_steps.step == 3
    by_epochs = trained(tmp_path, options(tmp_path, output=tmp_path / "b", max_steps=500, epochs=0.5, max_minutes=50))
    assert 3 < by_epochs.step < 100
    assert log(tmp_path / "b")[-1]["epochs"] == pytest.approx(0.5, abs=0.1)
    by_time = trained(tmp_path, options(tmp_path, output=tmp_path / "c", max_steps=10**6, max_minutes=0.01))
    assert 0 < by_time.step < 10**4


def test_checkpoints_are_kept_and_the_end_is_in_the_folder_itself(tmp_path: Path) -> None:
    given = options(tmp_path, save_every=2, max_steps=9, keep_checkpoints=2)
    trained(tmp_path, given)
    assert sorted(path.name for path in checkpoints(given.output)) == [
        "checkpoint-000006",
        "checkpoint-000008",
        "checkpoint-000009",
    ]
    newest = latest_checkpoint(given.output)
    assert newest is not None
    for folder in (newest, given.output):
        again = from_checkpoint(folder, device=torch.device("cpu"), seed=0)
        assert again.new_heads == ()
        assert again.tokenizer.token_to_id("v3") is not None
    assert (
        load_pretrained(newest)
        .state_dict()["mlm.norm.bias"]
        .equal(load_pretrained(given.output).state_dict()["mlm.norm.bias"])
    )
    assert not list(given.output.glob(".*"))


def test_a_checkpoint_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    given = options(tmp_path, max_steps=4)
    trained(tmp_path, given)
    (given.output / ".checkpoint-000009.new").mkdir()
    assert latest_checkpoint(given.output) == given.output / "checkpoint-000004"


@pytest.mark.parametrize("damage", ["cut", "gone", "foreign"])
def test_a_damaged_state_is_told_and_nothing_is_gone_on_from(tmp_path: Path, damage: str) -> None:
    given = options(tmp_path, max_steps=2)
    trained(tmp_path, given)
    state = given.output / "checkpoint-000002" / STATE
    if damage == "cut":
        state.write_bytes(state.read_bytes()[:1000])
    elif damage == "foreign":
        torch.save({"step": 1}, state)
    else:
        state.unlink()
    with pytest.raises(TrainingError, match=f"{STATE}: is "):
        Trainer(start(tmp_path), given, ranks=ALONE).resume()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_tokens": 300, "seed": 1}, "batch_tokens, seed"),
        ({"optimization": Optimization(learning_rate=2e-3)}, "learning_rate"),
    ],
)
def test_a_run_goes_on_with_what_it_began_with(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    trained(tmp_path, options(tmp_path, max_steps=2))
    with pytest.raises(TrainingError, match=f"checkpoint-000002: {named}: not as before"):
        Trainer(start(tmp_path), options(tmp_path, **changes), ranks=ALONE).resume()
    assert Trainer(start(tmp_path), options(tmp_path, max_steps=7, save_every=1), ranks=ALONE).resume()


def test_a_run_does_not_go_on_with_another_text_model_or_vocabulary(tmp_path: Path) -> None:
    trained(tmp_path, options(tmp_path, max_steps=2))
    smaller = start(tmp_path, config=replace(tiny_config(), intermediate_size=11))
    with pytest.raises(TrainingError, match="intermediate_size: not as before"):
        Trainer(smaller, options(tmp_path), ranks=ALONE).resume()
    other = start(tmp_path)
    pieces = (other.folder / "vocab.txt").read_text("utf-8")
    (other.folder / "vocab.txt").write_text(pieces.replace("\nv3\n", "\nw3\n"), "utf-8")
    write_corpus(tmp_path / "text.txt", documents=41, seed=0)
    other = from_config(tiny_config(), other.folder, device=torch.device("cpu"), seed=0)
    with pytest.raises(TrainingError, match="corpus, vocabulary: not as before"):
        Trainer(other, options(tmp_path), ranks=ALONE).resume()


def test_time_that_is_over_before_the_first_step_leaves_no_model(tmp_path: Path) -> None:
    given = options(tmp_path, max_steps=None, max_minutes=1e-12)
    with pytest.raises(TrainingError, match="max_minutes: 1e-12 were over before the first step"):
        trained(tmp_path, given)
    assert not list(given.output.glob("*.safetensors"))
    assert latest_checkpoint(given.output) is None


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path, max_steps=4, save_every=2)

    def full(state: dict[str, Any], path: Path) -> None:
        if state["step"] == 4:
            path.write_bytes(b"half")
            raise RuntimeError("unexpected pos 68480 vs 68432")
        save(state, path)

    save = torch.save
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="is the disk full"):
        trained(tmp_path, given)
    assert [path.name for path in given.output.glob("*checkpoint-*")] == ["checkpoint-000002"]
    assert not (given.output / "config.json").exists()


def test_held_out_text_is_evaluated_and_drawn(tmp_path: Path) -> None:
    held_out = write_corpus(tmp_path / "valid.txt", documents=10, seed=9)
    given = options(tmp_path, validation=(held_out,), evaluate_every=5, evaluation_pairs=20)
    trained(tmp_path, given)
    found = [entry for entry in log(given.output) if "validation" in entry]
    assert [entry["step"] for entry in found] == [5, 10, 12]
    assert all(entry["validation"]["pairs"] >= 20 for entry in found)
    picture = (given.output / "curve.svg").read_text("utf-8")
    assert picture.startswith("<svg")
    assert "mlm validation" in picture


def test_a_loss_that_is_no_number_ends_the_run_and_spares_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path, save_every=2, max_steps=50)
    trainer = Trainer(start(tmp_path), given, ranks=ALONE)
    step = trainer._optimizer.step

    def step_and_break(*arguments: Any) -> None:
        step(*arguments)
        if trainer.step == 2:
            with torch.no_grad():
                trainer._model.bert.embeddings.norm.bias.fill_(float("nan"))

    monkeypatch.setattr(trainer._optimizer, "step", step_and_break)
    with pytest.raises(TrainingError, match=r"step 4: .* lower learning rate"):
        trainer.run()
    newest = latest_checkpoint(given.output)
    assert newest is not None
    assert newest.name == "checkpoint-000002"
    assert all(values.isfinite().all() for values in load_pretrained(newest).state_dict().values())


def test_a_signal_ends_the_run_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = options(tmp_path, max_steps=10**6)
    trainer = Trainer(start(tmp_path), given, ranks=ALONE)
    step = trainer._optimizer.step

    def step_and_interrupt(*arguments: Any) -> None:
        step(*arguments)
        if trainer.step == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(trainer._optimizer, "step", step_and_interrupt)
    # Whoever starts the tests in the background may have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stops_on_signals(trainer.stop):
            trainer.run()
            assert trainer.was_stopped
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert latest_checkpoint(given.output) == given.output / "checkpoint-000004"


def test_missing_heads_are_new_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    given = options(tmp_path, max_steps=1)
    trained(tmp_path, given)
    whole = load_pretrained(given.output)
    from bert_core.checkpoint import save_pretrained
    from bert_core.model import BertForPreTraining

    bare = BertForPreTraining(whole.config, heads=Heads(pooler=False, mlm=False, nsp=False))
    bare.load_state_dict(whole.state_dict(), strict=False)
    folder = write_vocabulary(tmp_path / "bare")
    save_pretrained(bare, folder)
    found = from_checkpoint(folder, device=torch.device("cpu"), seed=0)
    assert found.new_heads == ("pooler", "mlm", "nsp")
    assert found.model.heads == Heads()
    assert found.model.mlm is not None
    assert found.model.mlm.decoder.weight is found.model.bert.embeddings.token.weight
    for name, values in bare.state_dict().items():
        assert found.model.state_dict()[name].equal(values), name


def test_embeddings_are_kept(tmp_path: Path) -> None:
    """With the weight high, states on masked text come closer to those of the starting model."""
    given = options(tmp_path, keep_embeddings=20.0, max_steps=60)
    trained(tmp_path, given)
    losses = [entry["embedding_loss"] for entry in log(given.output)]
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_embeddings_are_kept_of_another_model(tmp_path: Path) -> None:
    """At first they have nothing to do with each other, later much."""
    given = options(tmp_path, keep_embeddings=20.0, max_steps=60)
    other = tiny_model(replace(start(tmp_path).model.config, num_hidden_layers=1), seed=3).bert
    before = {name: values.clone() for name, values in other.state_dict().items()}
    Trainer(replace(start(tmp_path), teacher=other), given, ranks=ALONE).run()
    losses = [entry["embedding_loss"] for entry in log(given.output)]
    assert losses[0] > 0.5
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    assert all(values.equal(before[name]) for name, values in other.state_dict().items())
    with pytest.raises(TrainingError, match="init_from, keep_embeddings_of: not as before"):
        Trainer(start(tmp_path), given, ranks=ALONE).resume()


@pytest.mark.parametrize("precision", ["bfloat16", "auto"])
def test_bfloat16_trains_float32_parameters(tmp_path: Path, precision: str) -> None:
    trainer = trained(tmp_path, options(tmp_path, precision=precision, max_steps=30))
    losses = [entry["mlm_loss"] for entry in log(tmp_path / "output")]
    assert losses[-1] < losses[0]
    assert {parameter.dtype for parameter in trainer._model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"max_steps": None}, "one of max_steps, epochs and max_minutes is needed"),
        ({"max_steps": 0}, "max_steps: 0 is not allowed"),
        ({"epochs": -1.0}, "epochs: -1.0 is not allowed"),
        ({"max_length": 4}, "max_length: 4 is not allowed; it must be at least 5"),
        ({"batch_tokens": 0}, "batch_tokens: 0"),
        ({"epochs": float("inf")}, "epochs: inf is not allowed; it must be a number above 0"),
        ({"dropout": 1.0}, "dropout: 1.0 is not allowed; it must be a number from 0 to below 1"),
        ({"dropout": float("nan")}, "dropout: nan is not allowed"),
        ({"seed": 2**63}, "seed: 9223372036854775808 is not allowed; it must be at most"),
        ({"optimization": Optimization(learning_rate=float("inf"))}, "learning_rate: inf"),
        ({"keep_embeddings": float("nan")}, "keep_embeddings: nan"),
        ({"optimization": Optimization(learning_rate=-1.0)}, "learning_rate: -1.0"),
        ({"optimization": Optimization(head_learning_rate=0.0)}, "head_learning_rate: 0.0"),
        ({"optimization": Optimization(warm_up=1.5)}, "warm_up: 1.5"),
        ({"optimization": Optimization(betas=(0.9, 1.0))}, "betas:"),
        ({"optimization": Optimization(weight_decay=-0.1)}, "weight_decay: -0.1"),
    ],
)
def test_bad_values_are_refused_by_name(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        options(tmp_path, **changes)
