"""How much arithmetic a text costs, in multiply and add operations, for the full trunk and mean pooling."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.texts import CHECKPOINT


@dataclass(frozen=True, slots=True)
class Trunk:
    """D hidden width, F feed-forward width."""

    layers: int
    hidden: int
    middle: int

    @property
    def products_per_token(self) -> int:
        """The four linear layers, D to 3D, D to D, D to F and F to D: 2 * (4 D^2 + 2 D F) a layer."""
        return self.layers * 2 * (4 * self.hidden**2 + 2 * self.hidden * self.middle)

    def attention(self, length: int) -> int:
        """Scores and weighted sums of one text: 4 D L for each of its L tokens and each layer."""
        return self.layers * 4 * self.hidden * length**2

    def operations(self, lengths: Sequence[int]) -> int:
        """Products and attention of texts of these lengths."""
        return self.products_per_token * sum(lengths) + sum(self.attention(length) for length in lengths)


def trunk() -> Trunk:
    """The shipped checkpoint's."""
    config = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    return Trunk(config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"])
