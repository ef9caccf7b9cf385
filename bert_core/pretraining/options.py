"""What a training run is told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bert_core.pretraining.corpus import Corpus, CorpusFormat
from bert_core.pretraining.instances import LEAST_MAX_LENGTH
from bert_core.pretraining.optimization import Optimization

Precision = Literal["auto", "float32", "bfloat16"]

GREATEST_SEED = 2**63 - 1
# A run goes on the same way whatever these are.
_MAY_CHANGE = (
    *("output", "validation", "evaluation_pairs", "evaluate_every", "save_every", "log_every", "keep_checkpoints"),
    *("max_steps", "epochs", "max_minutes", "precision"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """A run of `Trainer`.

    corpus, validation: text files. output: the folder for everything that comes of it.
    corpus_format, encoding, split_sentences: as in `Corpus`.
    max_length: tokens of a pair, special tokens counted. batch_tokens: of a batch. accumulate: batches of a step.
    max_steps, epochs, max_minutes: the first that is reached ends the run; one is needed.
    dropout: of states and of attention, in place of what the model's config says; None is as that says.
    evaluate_every, save_every: steps; 0 is at the end alone. log_every: steps.
    evaluation_pairs: how much of the validation text is used.
    keep_embeddings: weight of the embedding loss; 0 is none.
    keep_checkpoints: how many older ones stay.

    Raises:
        ValueError: one line for every value that is not allowed.
    """

    corpus: tuple[Path, ...]
    output: Path
    validation: tuple[Path, ...] = ()
    corpus_format: CorpusFormat = "documents"
    encoding: str = "utf-8"
    split_sentences: bool = True
    max_length: int = 128
    batch_tokens: int = 8192
    accumulate: int = 1
    whole_words: bool = False
    optimization: Optimization = field(default_factory=Optimization)
    dropout: float | None = None
    max_steps: int | None = None
    epochs: float | None = None
    max_minutes: float | None = None
    keep_embeddings: float = 0.0
    precision: Precision = "auto"
    seed: int = 0
    evaluate_every: int = 500
    evaluation_pairs: int = 512
    save_every: int = 500
    log_every: int = 10
    keep_checkpoints: int = 1

    def __post_init__(self) -> None:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))

    def text(self, paths: Sequence[Path]) -> Corpus:
        """Files as these options say that they are to be read.

        Raises:
            CorpusError: a file or the encoding cannot be used.
        """
        return Corpus(paths, corpus_format=self.corpus_format, encoding=self.encoding, split=self.split_sentences)

    def lasting(self) -> dict[str, Any]:
        """What must be the same when a run goes on, as plain values; of the files, names and sizes in bytes."""
        optimization = asdict(self.optimization)
        optimization["betas"] = list(self.optimization.betas)
        own = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _MAY_CHANGE}
        del own["optimization"]
        return own | optimization | {"corpus": [[path.name, path.stat().st_size] for path in self.corpus]}

    def _problems(self) -> list[str]:
        limits = {"max_steps": self.max_steps, "epochs": self.epochs, "max_minutes": self.max_minutes}
        problems = [
            f"{name}: {value} is not allowed; it must be a number above 0"
            for name, value in limits.items()
            if value is not None and not 0 < value < math.inf
        ]
        if all(value is None for value in limits.values()):
            problems.append("one of max_steps, epochs and max_minutes is needed")
        if self.max_length < LEAST_MAX_LENGTH:
            problems.append(f"max_length: {self.max_length} is not allowed; it must be at least {LEAST_MAX_LENGTH}")
        least = {"batch_tokens": 1, "accumulate": 1, "evaluation_pairs": 1, "log_every": 1}
        least |= {"evaluate_every": 0, "save_every": 0, "keep_checkpoints": 0, "seed": 0}
        for name, at_least in least.items():
            if getattr(self, name) < at_least:
                problems.append(f"{name}: {getattr(self, name)} is not allowed; it must be at least {at_least}")
        if self.seed > GREATEST_SEED:
            problems.append(f"seed: {self.seed} is not allowed; it must be at most {GREATEST_SEED}")
        if not 0 <= self.keep_embeddings < math.inf:
            problems.append(f"keep_embeddings: {self.keep_embeddings} is not allowed; it must be a number from 0")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            problems.append(f"dropout: {self.dropout} is not allowed; it must be a number from 0 to below 1")
        optimization = self.optimization
        rates = {"learning_rate": optimization.learning_rate}
        if optimization.head_learning_rate is not None:
            rates["head_learning_rate"] = optimization.head_learning_rate
        problems += [
            f"{name}: {value} is not allowed; it must be a number above 0"
            for name, value in rates.items()
            if not 0 < value < math.inf
        ]
        if not 0 <= optimization.warm_up <= 1:
            problems.append(f"warm_up: {optimization.warm_up} is not allowed; it must be from 0 to 1")
        if not all(0 <= beta < 1 for beta in optimization.betas):
            problems.append(f"betas: {optimization.betas} is not allowed; each must be at least 0 and below 1")
        for name in ("weight_decay", "clip", "epsilon"):
            if not 0 <= getattr(optimization, name) < math.inf:
                problems.append(f"{name}: {getattr(optimization, name)} is not allowed; it must be a number from 0")
        return problems
