"""Requests of all kinds and lengths, and their right answers, computed beforehand without the service.

Each answer comes from one text alone in a padded call of the model in float32: nothing of batching, queue or engine is
in its way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core import BertForPreTraining, BertTokenizer, load_pretrained
from tests.benchmarks.texts import BLOCK, masked, of_length, pair, sample

TOLERANCE = 1e-4
LENGTHS = (4, 8, 16, 24, 48, 96, 160, 250)
TOP_K = 5
LIST_TEXTS = 7
EMBED_TOKENS = 256

Check = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and what is wrong with an answer to it; None if nothing is."""

    route: str
    body: Mapping[str, Any]
    fault: Check


class Reference:
    """The shipped checkpoint's answers, one text at a time.

    Args:
        folder: the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self._model: BertForPreTraining = load_pretrained(folder)
        self._tokenizer = BertTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def embed(self, text: str) -> list[float]:
        """Mean of the last states, normalised; the checkpoint's sentence-transformers files cut texts for it."""
        ids = self._tokenizer.encode(text, max_length=EMBED_TOKENS, truncate="right").ids
        states_LD = self._model.bert(torch.tensor([ids])).last_hidden_state[0]
        vector: list[float] = F.normalize(states_LD.mean(0), dim=0).tolist()
        return vector

    @torch.inference_mode()
    def fill_mask(self, text: str) -> Tensor:
        """Probabilities of the vocabulary for the one mask, `[V]`."""
        encoding = self._tokenizer.encode(text, max_length=512)
        [place] = encoding.mask_positions
        logits = self._model(torch.tensor([encoding.ids])).prediction_logits
        assert isinstance(logits, Tensor)
        return logits[0, place].softmax(-1)

    @torch.inference_mode()
    def next_sentence(self, first: str, second: str) -> float:
        """The probability that the second follows."""
        encoding = self._tokenizer.encode_pair(first, second, max_length=512)
        logits = self._model(
            torch.tensor([encoding.ids]), token_type_ids=torch.tensor([encoding.segment_ids])
        ).seq_relationship_logits
        assert logits is not None
        return float(logits[0].softmax(-1)[0])


def all_texts() -> list[str]:
    """Of all lengths."""
    return [text for length in LENGTHS for text in of_length(length, count=3)] + sample(BLOCK)[:40]


def questions(reference: Reference, texts: Sequence[str]) -> list[Question]:
    """Of every route and of every text, in an order that mixes them."""
    vectors = {text: reference.embed(text) for text in texts}
    embed = [_embed([text], vectors) for text in texts]
    lists = [_embed(texts[begin : begin + LIST_TEXTS], vectors) for begin in range(0, len(texts), LIST_TEXTS)]
    long_enough = [text for text in texts if len(text.split()) > 3]
    fill_mask = [_fill_mask(masked(text), reference) for text in long_enough]
    next_sentence = [_next_sentence(*pair(text), reference) for text in long_enough]
    turns = itertools.zip_longest(embed, fill_mask, next_sentence, lists)
    return [question for turn in turns for question in turn if question is not None]


def _embed(texts: Sequence[str], vectors: Mapping[str, list[float]]) -> Question:
    expected = np.array([vectors[text] for text in texts])

    def fault(answer: Any) -> str | None:
        found = np.array(answer)
        if found.shape != expected.shape:
            return f"the shape is {found.shape}, not {expected.shape}"
        return _difference(float(np.abs(found - expected).max()))

    return Question("/embed", {"inputs": texts[0] if len(texts) == 1 else list(texts)}, fault)


def _fill_mask(text: str, reference: Reference) -> Question:
    probabilities_V = reference.fill_mask(text)
    best = probabilities_V.topk(TOP_K).values

    def fault(answer: Any) -> str | None:
        if len(answer) != TOP_K:
            return f"{len(answer)} predictions, not {TOP_K}"
        # By value and not by token: two that are nearly as good may change places.
        ranks = (abs(one["score"] - float(value)) for one, value in zip(answer, best, strict=True))
        tokens = (abs(one["score"] - float(probabilities_V[one["token"]])) for one in answer)
        return _difference(max(*ranks, *tokens))

    return Question("/fill-mask", {"inputs": text, "top_k": TOP_K}, fault)


def _next_sentence(first: str, second: str, reference: Reference) -> Question:
    expected = reference.next_sentence(first, second)

    def fault(answer: Any) -> str | None:
        return _difference(abs(answer["is_next"] - expected))

    return Question("/next-sentence", {"inputs": {"text": first, "text_pair": second}}, fault)


def _difference(most: float) -> str | None:
    return None if most <= TOLERANCE else f"a number is {most:.2g} off"
