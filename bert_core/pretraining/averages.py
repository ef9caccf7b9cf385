"""What a run has seen since the last line of its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from bert_core.pretraining.objective import Sums

FIGURES = ("prediction_loss", "next_loss", "embedding_loss", "correct_predictions", "correct_next")
"""Of `Sums`, in the order in which several processes add them up."""


@dataclass(slots=True)
class Averages:
    """Sums over steps and processes."""

    masked: float = 0.0
    pairs: float = 0.0
    tokens: float = 0.0
    prediction_loss: float = 0.0
    next_loss: float = 0.0
    embedding_loss: float = 0.0
    correct_predictions: float = 0.0
    correct_next: float = 0.0
    seconds: float = 0.0

    def add(self, figures: Sequence[float], *, masked: float, pairs: float, tokens: float) -> None:
        """A step: `FIGURES`, and how many tokens were masked, how many pairs and tokens there were."""
        for name, value in zip(FIGURES, figures, strict=True):
            setattr(self, name, getattr(self, name) + value)
        self.masked += masked
        self.pairs += pairs
        self.tokens += tokens

    def entry(self, *, with_embeddings: bool) -> dict[str, float]:
        """What the log says of it."""
        entry = {
            "mlm_loss": self.prediction_loss / self.masked,
            "mlm_accuracy": self.correct_predictions / self.masked,
            "nsp_loss": self.next_loss / self.pairs,
            "nsp_accuracy": self.correct_next / self.pairs,
            "tokens_per_second": self.tokens / self.seconds,
        }
        if with_embeddings:
            entry["embedding_loss"] = self.embedding_loss / self.pairs
        return entry


def figures_of(sums: Sums) -> list[Tensor | None]:
    """`FIGURES` of a batch."""
    return [getattr(sums, name) for name in FIGURES]
