"""A training step of ours beside a plain loop over `transformers`: `python -m tests.benchmarks.pretraining TEXT`.

The same pairs, masked the same way, in the same batches; the same shape and weights, AdamW and bfloat16 autocast. The
plain loop pads each batch to its longest pair and has logits of every token, as `BertForPreTraining` does.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BertForPreTraining as TransformersBert

from bert_core import BertTokenizer, load_pretrained
from bert_core.pretraining.batches import Collator, TrainingBatch
from bert_core.pretraining.corpus import Corpus
from bert_core.pretraining.instances import SegmentTokenizer
from bert_core.pretraining.objective import Objective
from bert_core.pretraining.optimization import Optimization, make_optimizer
from bert_core.pretraining.stream import BatchStream
from tests.benchmarks import machine
from tests.benchmarks.texts import CHECKPOINT

Step = Callable[[TrainingBatch], Tensor]


def ours(folder: Path, *, autocast: bool) -> Step:
    """A step of the trainer's: packed, heads on the rows that they read."""
    model = load_pretrained(folder).train()
    objective = Objective(model)
    optimizer = make_optimizer(model, Optimization())

    def step(batch: TrainingBatch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            sums = objective(batch)
            loss: Tensor = sums.prediction_loss / len(batch.labels_M) + sums.next_loss / batch.sequences
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def plain(folder: Path, *, autocast: bool) -> Step:
    """What a user would write around `transformers`."""
    model = TransformersBert.from_pretrained(folder, dtype=torch.float32).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)

    def step(batch: TrainingBatch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss: Tensor = model(**padded(batch)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def padded(batch: TrainingBatch) -> dict[str, Tensor]:
    """The arguments of `transformers` for a batch, padded to its longest pair."""
    masked = batch.masked
    assert masked.ids_T is not None
    labels_T = torch.full_like(masked.ids_T, -100).index_copy(0, batch.places_M, batch.labels_M)

    def rows(values_T: Tensor, *, padding: int) -> Tensor:
        return pad_sequence(list(values_T.split(list(masked.lengths))), batch_first=True, padding_value=padding)

    return {
        "input_ids": rows(masked.ids_T, padding=0),
        "attention_mask": rows(torch.ones_like(masked.ids_T), padding=0),
        "token_type_ids": rows(masked.segments_T, padding=0),
        "labels": rows(labels_T, padding=-100),
        "next_sentence_label": batch.next_N,
    }


def batches_of(paths: Sequence[Path], *, count: int, max_length: int, batch_tokens: int) -> list[TrainingBatch]:
    """The first ones of a corpus."""
    tokenizer = BertTokenizer.from_pretrained(CHECKPOINT)
    stream = BatchStream(
        corpus=Corpus(paths),
        tokenize=SegmentTokenizer(tokenizer),
        collate=Collator(tokenizer, config=load_pretrained(CHECKPOINT).config, whole_words=False),
        max_length=max_length,
        batch_tokens=batch_tokens,
        seed=0,
    )
    return [batch for batch, _ in itertools.islice(stream.batches(), count)]


def main() -> None:
    """Measure in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="+", type=Path, help="a corpus, blank lines between documents")
    parser.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--batches", type=int, default=3, help="of a round (default: %(default)s)")
    parser.add_argument("--max-length", type=int, default=128, help="(default: %(default)s)")
    parser.add_argument("--batch-tokens", type=int, default=4096, help="(default: %(default)s)")
    parser.add_argument("--float32", action="store_true", help="no autocast")
    given = parser.parse_args()
    batches = batches_of(given.text, count=given.batches, max_length=given.max_length, batch_tokens=given.batch_tokens)
    tokens = sum(batch.tokens for batch in batches)
    filled = tokens / sum(padded(batch)["input_ids"].numel() for batch in batches)
    print(machine.describe())
    print(f"{len(batches)} batches of {tokens / len(batches):.0f} tokens; {filled:.0%} of the padded ones are text")
    steps = {
        "ours": ours(CHECKPOINT, autocast=not given.float32),
        "transformers": plain(CHECKPOINT, autocast=not given.float32),
    }
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(given.rounds + 1):
        for name, step in steps.items():
            begin = time.perf_counter()
            losses = [float(step(batch)) for batch in batches]
            rate = tokens / (time.perf_counter() - begin)
            print(f"round {number}  {name:<14} {rate:8,.0f} tokens/s, loss {losses[-1]:.3f}", flush=True)
            if number:  # the first one warms up
                rates[name].append(rate)
    ratio = median(mine / theirs for mine, theirs in zip(rates["ours"], rates["transformers"], strict=True))
    for name, values in rates.items():
        print(f"{name:<14} {median(values):8,.0f} tokens/s")
    print(f"ratio, median of the rounds' own: {ratio:.2f}")


if __name__ == "__main__":
    main()
