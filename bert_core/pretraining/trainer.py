"""The training loop."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bert_core.checkpoint import load_pretrained
from bert_core.config import FIELD_NAMES
from bert_core.model import BertForPreTraining, BertModel
from bert_core.precision import computes_natively
from bert_core.pretraining.averages import FIGURES, Averages, figures_of
from bert_core.pretraining.batches import Collator, TrainingBatch
from bert_core.pretraining.evaluation import evaluate
from bert_core.pretraining.instances import SegmentTokenizer, all_pieces
from bert_core.pretraining.objective import Objective, Sums, sentence_embeddings
from bert_core.pretraining.optimization import make_optimizer, set_learning_rate
from bert_core.pretraining.options import TrainingOptions
from bert_core.pretraining.ranks import Ranks
from bert_core.pretraining.starting_model import StartingModel, check_config
from bert_core.pretraining.stream import BatchStream, Position, first_batches
from bert_core.pretraining.training_files import TrainingError, TrainingFiles, latest_checkpoint, read_state
from bert_core.tokenizer import BertTokenizer

EVALUATION_SEED = 20_181_011


class Progress(Protocol):
    """Told with every line of the log."""

    def __call__(self, *, share: float, step: int, loss: float, tokens_per_second: float) -> None: ...


class Trainer:
    """Trains a model by both tasks until the options say that it is enough.

    Args:
        start: the model is trained in place.
        options: of the run.
        ranks: this process among those of the run.
        progress: what is shown of it.

    Raises:
        ValueError: the model cannot take pairs of `max_length` tokens, or a text cannot be used.
    """

    def __init__(
        self, start: StartingModel, options: TrainingOptions, *, ranks: Ranks, progress: Progress | None = None
    ) -> None:
        check_config(start.model.config, max_length=options.max_length)
        self._options = options
        self._ranks = ranks
        self._progress = progress
        self._model = start.model.train()
        self._teacher: BertModel | None = None
        if options.keep_embeddings:
            teacher = start.teacher or copy.deepcopy(start.model.bert)
            self._teacher = teacher.eval().requires_grad_(False)
        self._autocast = _autocasts(options, ranks.device)
        self._objective: nn.Module = Objective(self._model)
        if ranks.count > 1:
            devices = [ranks.device] if ranks.device.type == "cuda" else None
            self._objective = DistributedDataParallel(self._objective, device_ids=devices)
        self._optimizer = make_optimizer(self._model, options.optimization)
        self._files = TrainingFiles(options.output, companions=start.folder)
        self._lasting = options.lasting() | {"processes": ranks.count}
        self._vocabulary = _digest(start.tokenizer)
        if self._teacher is not None:
            name = "init_from" if start.teacher is None else "keep_embeddings_of"
            self._lasting[name] = _digest_of_weights(self._teacher)
        self._stream = BatchStream(
            corpus=options.text(options.corpus),
            tokenize=SegmentTokenizer(start.tokenizer),
            collate=Collator(start.tokenizer, config=self._model.config, whole_words=options.whole_words),
            max_length=options.max_length,
            batch_tokens=options.batch_tokens,
            seed=options.seed,
        )
        self._validation: list[TrainingBatch] = []
        if options.validation:
            held_out = replace(self._stream, corpus=options.text(options.validation), seed=EVALUATION_SEED)
            self._validation = first_batches(held_out, pairs=options.evaluation_pairs)
        self._step = 0
        self._position = Position()
        self._seconds_before = 0.0
        self._tokens = 0
        self._stops = False

    @property
    def step(self) -> int:
        """Steps done."""
        return self._step

    def resume(self) -> bool:
        """Go on from the newest checkpoint in the output folder; False if there is none.

        Raises:
            TrainingError: the run there had another text, model or options, or its checkpoint is damaged.
            CheckpointError: the model in it cannot be loaded.
        """
        folder = latest_checkpoint(self._options.output)
        if folder is None:
            return False
        state = read_state(folder, device=self._ranks.device)
        loaded = load_pretrained(folder, device=self._ranks.device)
        if changed := sorted(self._changed(state, loaded)):
            raise TrainingError(f"{folder}: {', '.join(changed)}: not as before; a run goes on with what it began with")
        self._model.load_state_dict(loaded.state_dict())
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._tokens = state["step"], state["tokens"]
        self._seconds_before = state["seconds"]
        self._position = Position.from_state(state["position"])
        return True

    def _changed(self, state: Mapping[str, Any], loaded: BertForPreTraining) -> Iterator[str]:
        """Names of what is not as it was when a checkpoint was made."""
        before, now = state["options"], self._lasting
        yield from (name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        ours, theirs = (model.config for model in (self._model, loaded))
        yield from (name for name in FIELD_NAMES if getattr(ours, name) != getattr(theirs, name))
        if state["vocabulary"] != self._vocabulary:
            yield "vocabulary"

    def run(self) -> Mapping[str, Any]:
        """Train to the end, or until `stop`; saves then, too.

        Raises:
            TrainingError: the loss is no longer a number, or the time was over before the first step.
            CorpusError: a fault of the text.

        Returns:
            The last line of the log.
        """
        ranks, options = self._ranks, self._options
        if ranks.is_first:
            self._files.forget_log_after(self._step)
        began = time.monotonic() - self._seconds_before
        averages = Averages()
        entry: dict[str, Any] = {"step": self._step}
        batches = self._stream.batches(self._position, rank=ranks.rank, ranks=ranks.count)
        saved, evaluated = self._step or -1, -1  # what was gone on from is there already
        while True:
            seconds = time.monotonic() - began
            # All processes stop at the same step.
            wants_stop, seconds = (value / ranks.count for value in ranks.sum([float(self._stops), seconds]))
            share = self._share_done(seconds)
            if wants_stop or share >= 1:
                break
            step_began = time.monotonic()
            norm = self._train(batches, averages, share=share)
            averages.seconds += time.monotonic() - step_began
            self._step += 1
            if self._step % options.log_every == 0:
                entry = self._log(averages, norm=norm, seconds=time.monotonic() - began)
                averages = Averages()
            if self._validation and options.evaluate_every and self._step % options.evaluate_every == 0:
                entry, evaluated = self._evaluate(time.monotonic() - began), self._step
            if options.save_every and self._step % options.save_every == 0:
                self._save(time.monotonic() - began)
                saved = self._step
        if not self._step and not self._stops:
            raise TrainingError(f"max_minutes: {options.max_minutes} were over before the first step")
        if averages.tokens:
            entry = self._log(averages, norm=None, seconds=time.monotonic() - began)
        if evaluated != self._step and self._validation:
            entry = self._evaluate(time.monotonic() - began)
        if saved != self._step:
            self._save(time.monotonic() - began)
        if ranks.is_first:
            self._files.save_final(self._model)
            self._files.draw()
        ranks.wait()
        return entry

    def stop(self) -> None:
        """End after the step that runs."""
        self._stops = True

    @property
    def was_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stops

    def _share_done(self, seconds: float) -> float:
        options = self._options
        limits = (
            (self._step, options.max_steps),
            (self._position.epochs_done, options.epochs),
            (seconds / 60, options.max_minutes),
        )
        return max(done / limit for done, limit in limits if limit is not None)

    def _train(self, batches: Iterator[tuple[TrainingBatch, Position]], averages: Averages, *, share: float) -> Tensor:
        """One step; the gradient's norm before clipping."""
        options, ranks = self._options, self._ranks
        taken = list(itertools.islice(batches, options.accumulate))
        self._position = taken[-1][1]
        own = [batch.to(ranks.device) for batch, _ in taken]
        # Losses are means over all of a step's masked tokens and pairs, wherever these are.
        counts = [sum(len(batch.labels_M) for batch in own), sum(batch.sequences for batch in own)]
        masked, pairs, tokens = ranks.sum([*counts, sum(batch.tokens for batch in own)])
        # Dropout follows from the seed, the step and the process, so a run that goes on repeats it.
        torch.manual_seed(_mixed(options.seed, self._step, ranks.rank))
        sums = torch.zeros(len(FIGURES), dtype=torch.float64, device=ranks.device)
        for number, batch in enumerate(own):
            with self._gathers_gradients(number + 1 == len(own)):
                with self._autocasting():
                    embeddings_ND = None if self._teacher is None else sentence_embeddings(self._teacher, batch)
                    found: Sums = self._objective(batch, embeddings_ND)
                losses = [found.prediction_loss, found.next_loss, found.embedding_loss]
                weights = [1 / masked, 1 / pairs, options.keep_embeddings / pairs]
                parts = [loss * weight for loss, weight in zip(losses, weights, strict=True) if loss is not None]
                # Several processes' gradients are averaged, not summed.
                (sum(parts[1:], parts[0]) * ranks.count).backward()
            figures = [sums.new_zeros(()) if one is None else one.detach().double() for one in figures_of(found)]
            sums += torch.stack(figures)
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), options.optimization.clip or math.inf)
        totals = ranks.sum(sums.tolist())
        if not math.isfinite(sum(totals)) or not math.isfinite(norm.item()):
            raise TrainingError(
                f"step {self._step + 1}: the loss or its gradient is not a number any more; the last checkpoint is as "
                "it was. Try a lower learning rate, or a longer warm-up."
            )
        set_learning_rate(self._optimizer, factor=options.optimization.factor(share))
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._tokens += int(tokens)
        averages.add(totals, masked=masked, pairs=pairs, tokens=tokens)
        return norm

    def _gathers_gradients(self, gathers: bool) -> contextlib.AbstractContextManager[Any]:
        """Over all processes, once a step."""
        if gathers or not isinstance(self._objective, DistributedDataParallel):
            return contextlib.nullcontext()
        return self._objective.no_sync()

    def _autocasting(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(self._ranks.device.type, torch.bfloat16, enabled=self._autocast)

    def _log(self, averages: Averages, *, norm: Tensor | None, seconds: float) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "step": self._step,
            "epochs": round(self._position.epochs_done, 4),
            "tokens": self._tokens,
            "seconds": round(seconds, 1),
            "learning_rate": self._optimizer.param_groups[0]["lr"],
            **averages.entry(with_embeddings=self._teacher is not None),
        }
        if norm is not None:
            entry["gradient_norm"] = norm.item()
        if self._ranks.is_first:
            self._files.log(entry)
            if self._progress is not None:
                self._progress(
                    share=min(1.0, self._share_done(seconds)),
                    step=self._step,
                    loss=entry["mlm_loss"] + entry["nsp_loss"],
                    tokens_per_second=entry["tokens_per_second"],
                )
        return entry

    def _evaluate(self, seconds: float) -> dict[str, Any]:
        if not self._ranks.is_first:
            return {"step": self._step}
        with self._autocasting():
            found = evaluate(self._model, self._validation)
        entry = {"step": self._step, "seconds": round(seconds, 1), "validation": asdict(found)}
        self._files.log(entry)
        self._files.draw()
        return entry

    def _save(self, seconds: float) -> None:
        if not self._ranks.is_first:
            return
        state = {
            "step": self._step,
            "tokens": self._tokens,
            "seconds": seconds,
            "position": asdict(self._position),
            "optimizer": self._optimizer.state_dict(),
            "options": self._lasting,
            "vocabulary": self._vocabulary,
        }
        self._files.save(self._model, step=self._step, state=state, keep=self._options.keep_checkpoints)


def _autocasts(options: TrainingOptions, device: torch.device) -> bool:
    if options.precision != "auto":
        return options.precision == "bfloat16"
    return computes_natively(torch.bfloat16, device=device)


def _digest(tokenizer: BertTokenizer) -> str:
    """Of the pieces in their order."""
    pieces = "\n".join(all_pieces(tokenizer))
    return hashlib.sha256(pieces.encode("utf-8", "surrogatepass")).hexdigest()


def _digest_of_weights(model: BertModel) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _mixed(*numbers: int) -> int:
    """One seed of several numbers."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 1_000_003 + number) % 2**63
    return mixed
