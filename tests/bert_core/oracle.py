"""BERT written out formula by formula: float64, one sequence, no padding, no batch, no matrix tricks.

It reads the parameters of a `BertForPreTraining` by name and shares no code with it. Attention is a loop over heads,
queries and keys. Pruned heads are heads whose factor is 0, so give it the weights from before pruning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bert_core.config import BertConfig

Array = npt.NDArray[np.float64]
Visible = Sequence[Sequence[bool]]


def gelu(x: float) -> float:
    return x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def silu(x: float) -> float:
    return x * sigmoid(x)


def mish(x: float) -> float:
    return x * math.tanh(math.log1p(math.exp(x)))


ACTIVATIONS: dict[str | None, Callable[[float], float]] = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu_fast": gelu_tanh,
    "relu": lambda x: max(x, 0.0),
    "relu6": lambda x: min(max(x, 0.0), 6.0),
    "silu": silu,
    "swish": silu,
    "tanh": math.tanh,
    "sigmoid": sigmoid,
    "mish": mish,
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "linear": lambda x: x,
    None: lambda x: x,
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Of one sequence of L tokens: `[L, D]` before the first layer and after each, `[H, L, L]` of each layer,
    `[D]`, `[L, V]` and `[2]`."""

    hidden_states: list[Array]
    attentions: list[Array]
    pooled: Array
    prediction_logits: Array
    relationship_logits: Array

    @property
    def last(self) -> Array:
        return self.hidden_states[-1]


class Oracle:
    """The oracle for one model. `head_factors` is `[layers, H]`."""

    def __init__(self, model: nn.Module, config: BertConfig) -> None:
        self.weights: Mapping[str, Array] = {
            name: value.detach().double().numpy() for name, value in model.state_dict().items()
        }
        self.config = config

    def __call__(
        self,
        ids: Sequence[int] | Tensor | None = None,
        *,
        embeds: Tensor | None = None,
        segments: Sequence[int] | Tensor | None = None,
        positions: Sequence[int] | Tensor | None = None,
        head_factors: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Answer:
        if embeds is None:
            assert ids is not None
            tokens = [self.weights["bert.embeddings.token.weight"][int(number)] for number in ids]
        else:
            tokens = list(embeds.detach().double().numpy())
        length = len(tokens)
        segments = [0] * length if segments is None else [int(segment) for segment in segments]
        positions = list(range(length)) if positions is None else [int(position) for position in positions]
        see = [[True] * length] * length if visible is None else visible.bool().tolist()
        layers, heads = self.config.num_hidden_layers, self.config.num_attention_heads
        factors = np.ones((layers, heads)) if head_factors is None else head_factors.double().numpy()
        states = [self._embed(tokens, segments, positions)]
        attentions = []
        for layer in range(layers):
            state, probabilities = self._layer(states[-1], layer, positions, factors[layer], see)
            states.append(state)
            attentions.append(probabilities)
        pooled = self._pool(states[-1])
        return Answer(
            hidden_states=states,
            attentions=attentions,
            pooled=pooled,
            prediction_logits=np.stack([self._predict(row) for row in states[-1]]),
            relationship_logits=self._linear("nsp.classifier", pooled),
        )

    def _linear(self, name: str, vector: Array) -> Array:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return np.array([float(np.dot(row, vector)) + shift for row, shift in zip(weight, bias, strict=True)])

    def _norm(self, name: str, vector: Array) -> Array:
        mean = sum(vector) / len(vector)
        variance = sum((x - mean) ** 2 for x in vector) / len(vector)
        scaled = (vector - mean) / math.sqrt(variance + self.config.layer_norm_eps)
        return np.asarray(scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"])

    def _activate(self, vector: Array) -> Array:
        assert self.config.hidden_act is None or isinstance(self.config.hidden_act, str)
        activation = ACTIVATIONS[self.config.hidden_act]
        return np.array([activation(float(x)) for x in vector])

    def _position(self, position: int) -> Array:
        width = self.config.hidden_size
        if self.config.position_embedding_type == "absolute":
            return np.asarray(self.weights["bert.embeddings.position.weight"][position])
        if self.config.position_embedding_type == "sinusoidal":
            angles = [position / 10000 ** (2 * (column // 2) / width) for column in range(width)]
            return np.array([math.cos(a) if column % 2 else math.sin(a) for column, a in enumerate(angles)])
        return np.zeros(width)

    def _embed(self, tokens: Sequence[Array], segments: Sequence[int], positions: Sequence[int]) -> Array:
        segment_table = self.weights["bert.embeddings.segment.weight"]
        return np.stack(
            [
                self._norm("bert.embeddings.norm", token + self._position(position) + segment_table[segment])
                for token, segment, position in zip(tokens, segments, positions, strict=True)
            ]
        )

    def _layer(
        self, hidden: Array, layer: int, positions: Sequence[int], factors: Array, see: Visible
    ) -> tuple[Array, Array]:
        name = f"bert.encoder.layers.{layer}"
        pre = self.config.norm_placement == "pre"
        seen = [self._norm(f"{name}.attention_norm", row) for row in hidden] if pre else list(hidden)
        attended, probabilities = self.attend(seen, name, positions, factors, see)
        rows = []
        for row, change in zip(hidden, attended, strict=True):
            middle = row + change if pre else self._norm(f"{name}.attention_norm", row + change)
            into = self._norm(f"{name}.feed_forward_norm", middle) if pre else middle
            wide = self._activate(self._linear(f"{name}.feed_forward.up", into))
            out = middle + self._linear(f"{name}.feed_forward.down", wide)
            rows.append(out if pre else self._norm(f"{name}.feed_forward_norm", out))
        return np.stack(rows), probabilities

    def attend(
        self, seen: Sequence[Array], name: str, positions: Sequence[int], factors: Array, see: Visible
    ) -> tuple[list[Array], Array]:
        heads, length, hidden = self.config.num_attention_heads, len(seen), self.config.hidden_size
        width = hidden // heads
        projected = [self._linear(f"{name}.attention.qkv", row) for row in seen]
        probabilities = np.zeros((heads, length, length))
        contexts = np.zeros((length, hidden))
        for head in range(heads):
            columns = slice(head * width, (head + 1) * width)
            queries = [row[:hidden][columns] for row in projected]
            keys = [row[hidden : 2 * hidden][columns] for row in projected]
            values = [row[2 * hidden :][columns] for row in projected]
            for i in range(length):
                exponentials = np.zeros(length)
                for j in range(length):
                    if see[i][j]:
                        score = self._score(queries[i], keys[j], positions[i] - positions[j], name)
                        exponentials[j] = math.exp(score / math.sqrt(width))
                probabilities[head, i] = exponentials / exponentials.sum() * factors[head]
                for j in range(length):
                    contexts[i, columns] += probabilities[head, i, j] * values[j]
        return [self._linear(f"{name}.attention.output", row) for row in contexts], probabilities

    def _score(self, query: Array, key: Array, distance: int, name: str) -> float:
        score = float(np.dot(query, key))
        kind = self.config.position_embedding_type
        if kind in ("relative_key", "relative_key_query"):
            row = self.weights[f"{name}.attention.distance.weight"][distance + self.config.max_position_embeddings - 1]
            score += float(np.dot(query, row))
            if kind == "relative_key_query":
                score += float(np.dot(key, row))
        return score

    def _pool(self, last: Array) -> Array:
        vector = last[0]
        if self.config.pooler_type == "all_token_average":
            vector = np.asarray(last.sum(0) / len(last))
        return np.array([math.tanh(x) for x in self._linear("bert.pooler.dense", vector)])

    def _predict(self, row: Array) -> Array:
        changed = self._norm("mlm.norm", self._activate(self._linear("mlm.dense", row)))
        return self._linear("mlm.decoder", changed)


def gap(ours: Tensor, right: Array) -> float:
    """Largest absolute difference; shapes must agree."""
    assert tuple(ours.shape) == right.shape
    return float((ours.detach().double() - torch.from_numpy(right)).abs().max())
