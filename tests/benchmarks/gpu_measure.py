"""The measurements of the GPU benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

from bert_core.config import BertConfig
from service.load_generator.texts import parse_lengths
from tests.benchmarks.arithmetic import Trunk
from tests.benchmarks.gpu_timing import Stopwatch, Work
from tests.benchmarks.gpu_works import Models, in_batches
from tests.device_checks import Check

# The [CLS], [SEP] and first ordinary id of bert-base-uncased.
CLS, SEP, FIRST_WORD = 101, 102, 1000

# Texts of a batch of the mix: large ones pay where little is padding.
LARGE_BATCH = 192
PADDED_BATCH = 64
COSINE_BOUND = 0.999


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured, how thoroughly.

    product_size: rows and columns of the square matrices whose product shows the peak.
    mix: lengths of texts, as `bert-service bench --lengths` has it.
    """

    config: BertConfig
    device: torch.device
    dtype: torch.dtype
    product_size: int
    lengths: tuple[int, ...]
    batches: tuple[int, ...]
    latency_lengths: tuple[int, ...]
    mix: str
    mix_texts: int
    rounds: int
    seconds: float


def full_plan(device: torch.device) -> Plan:
    """BERT-base in bfloat16."""
    return Plan(
        config=BertConfig(),
        device=device,
        dtype=torch.bfloat16,
        product_size=8192,
        lengths=(128, 512),
        batches=(1, 4, 16, 64, 256),
        latency_lengths=(16, 128, 512),
        mix="47/84",
        mix_texts=2048,
        rounds=5,
        seconds=0.1,
    )


class Measurement:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._random = Random(0)
        self._watch = Stopwatch(device=plan.device, rounds=plan.rounds, seconds=plan.seconds)
        self._trunk = Trunk(plan.config.num_hidden_layers, plan.config.hidden_size, plan.config.intermediate_size)
        self._models = Models.random(plan.config, device=plan.device, dtype=plan.dtype)

    def texts(self, lengths: Sequence[int]) -> list[list[int]]:
        """Random ids, all texts distinct."""
        vocabulary = self._plan.config.vocab_size
        return [[CLS, *self._random.choices(range(FIRST_WORD, vocabulary), k=length - 2), SEP] for length in lengths]

    @torch.inference_mode()
    def agreement(self) -> Check:
        """Both programs give the same vectors, or their speeds could not be compared."""
        batch = self.texts(list(range(3, min(41, self._plan.config.max_position_embeddings))))
        ours, theirs = self._models.means([batch])(), self._models.reference_means([batch])()
        cosine = torch.cosine_similarity(ours.float(), theirs.float(), dim=1).min()
        return Check(name="1 - cosine to transformers, random BERT-base", gap=1 - float(cosine), bound=1 - COSINE_BOUND)

    @torch.inference_mode()
    def peak(self) -> float:
        """Operations per second of one large matrix product."""
        size = self._plan.product_size
        left, right = (torch.randn(size, size, device=self._plan.device).to(self._plan.dtype) for _ in range(2))
        return 2 * size**3 / self._watch.per_call({"product": lambda: left @ right})["product"]

    @torch.inference_mode()
    def batch(self, *, length: int, size: int) -> dict[str, Any]:
        """Equal lengths: sequences per second of each program."""
        batch = self.texts([length] * size)
        works = {
            "encoder": self._models.means([batch]),
            "encoder, [CLS] alone": self._models.first_tokens(batch),
            "engine": self._models.answers(batch),
            "transformers": self._models.reference_means([batch]),
        }
        return self._rates(works, lengths=[length] * size) | {"length": length, "batch": size}

    @torch.inference_mode()
    def mix(self) -> dict[str, Any]:
        """Texts of the mix in order of arrival: sequences per second of each program."""
        limit = self._plan.config.max_position_embeddings
        mix = parse_lengths(self._plan.mix, limit=limit)
        lengths = [mix.sample(self._random) for _ in range(self._plan.mix_texts)]
        texts = self.texts(lengths)
        by_length = in_batches(sorted(texts, key=len), size=LARGE_BATCH)
        works = {
            "encoder": self._models.means(in_batches(texts, size=LARGE_BATCH)),
            "engine": self._models.answers(texts),
            "transformers, padded": self._models.reference_means(in_batches(texts, size=PADDED_BATCH)),
            "transformers, sorted by length": self._models.reference_means(by_length),
        }
        return self._rates(works, lengths=lengths) | {"mix": self._plan.mix}

    @torch.inference_mode()
    def latency(self, *, length: int) -> dict[str, Any]:
        """One text at a time, in seconds. The engine replays its graphs where it has any, as it is served."""
        batch = self.texts([length])
        works: dict[str, Work] = {
            "encoder": self._models.means([batch]),
            "engine": self._models.answers(batch),
            "engine, no graphs": self._models.answers(batch, engine=self._models.engine_without_graphs),
            "transformers": self._models.reference_means([batch]),
        }
        return {"length": length, "seconds": self._watch.latencies(works)}

    def _rates(self, works: dict[str, Work], *, lengths: Sequence[int]) -> dict[str, Any]:
        seconds = self._watch.per_call(works)
        operations = self._trunk.operations(lengths)
        return {
            "tokens": sum(lengths),
            "sequences_per_second": {name: len(lengths) / value for name, value in seconds.items()},
            "operations_per_second": {name: operations / value for name, value in seconds.items()},
        }


def measure(measurement: Measurement, plan: Plan) -> dict[str, Any]:
    """All of it; the peak is that before and after, whichever is higher."""
    before = measurement.peak()
    batches = [measurement.batch(length=length, size=size) for length in plan.lengths for size in plan.batches]
    mix = measurement.mix()
    latencies = [measurement.latency(length=length) for length in plan.latency_lengths]
    return {
        "dtype": str(plan.dtype).removeprefix("torch."),
        "peak": max(before, measurement.peak()),
        "batches": batches,
        "mix": mix,
        "latencies": latencies,
    }
