"""Is one checkpoint better than another? `python -m tests.benchmarks.quality CHECKPOINT --start ENCODER`.

Gaps of a hundred sentences with the words that a reader would accept, and how much sentence embeddings still agree
with those of the encoder that a checkpoint was made from. `bert_core.pretraining.evaluate` has the accuracies on
held-out text.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core import BertForPreTraining, BertTokenizer, load_pretrained
from tests.benchmarks.texts import sample

CLOZE = Path(__file__).parent / "texts" / "cloze.tsv"
SENTENCES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloze:
    """Shares of the sentences whose first guess, and one of whose first five, is accepted; the mean reciprocal rank."""

    first: float
    of_five: float
    mean_reciprocal_rank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Cosines of a checkpoint's sentence embeddings to another's, and the correlation of all their similarities."""

    mean: float
    least: float
    similarity_correlation: float


def read_cloze() -> list[tuple[str, tuple[str, ...]]]:
    """Each sentence and the accepted words."""
    lines = CLOZE.read_text(encoding="utf-8").splitlines()
    return [(sentence, tuple(words.split())) for sentence, words in (line.split("\t") for line in lines)]


@torch.inference_mode()
def cloze(model: BertForPreTraining, tokenizer: BertTokenizer) -> Cloze:
    """Fill every gap."""
    ranks = []
    for sentence, words in read_cloze():
        encoding = tokenizer.encode(sentence, max_length=128)
        logits_V = _prediction(model, encoding.ids)[encoding.mask_positions[0]]
        accepted = [token for word in words if (token := tokenizer.token_to_id(word)) is not None]
        ranks.append(1 + int((logits_V > logits_V[accepted].max()).sum()))
    reciprocal = np.mean([1 / rank for rank in ranks])
    return Cloze(
        first=float(np.mean([rank == 1 for rank in ranks])),
        of_five=float(np.mean([rank <= 5 for rank in ranks])),
        mean_reciprocal_rank=float(reciprocal),
    )


def _prediction(model: BertForPreTraining, ids: list[int]) -> Tensor:
    logits = model(torch.tensor([ids])).prediction_logits
    assert isinstance(logits, Tensor)
    return logits[0]


@torch.inference_mode()
def embeddings(model: BertForPreTraining, tokenizer: BertTokenizer) -> Tensor:
    """Of the benchmarks' texts, `[N, D]`, normalised means."""
    vectors = []
    for text in sample(SENTENCES):
        ids = tokenizer.encode(text, max_length=128, truncate="right").ids
        vectors.append(F.normalize(model.bert(torch.tensor([ids])).last_hidden_state[0].mean(0), dim=0))
    return torch.stack(vectors)


def agreement(ours_ND: Tensor, theirs_ND: Tensor) -> Agreement:
    """Of two models' embeddings of the same texts."""
    cosines_N = (ours_ND * theirs_ND).sum(1)
    above = np.triu_indices(len(ours_ND), k=1)
    ours, theirs = ((vectors_ND @ vectors_ND.T).numpy()[above] for vectors_ND in (ours_ND, theirs_ND))
    return Agreement(
        mean=float(cosines_N.mean()),
        least=float(cosines_N.min()),
        similarity_correlation=float(np.corrcoef(np.stack([ours, theirs]))[0, 1]),
    )


def main() -> None:
    """Print the figures of each checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", nargs="+", type=Path)
    parser.add_argument("--start", type=Path, help="the encoder whose embeddings are to be kept")
    given = parser.parse_args()
    start = None
    if given.start is not None:
        start = embeddings(load_pretrained(given.start), BertTokenizer.from_pretrained(given.start))
    for folder in given.checkpoint:
        model, tokenizer = load_pretrained(folder), BertTokenizer.from_pretrained(folder)
        print(folder)
        if model.heads.mlm:
            print(f"  {cloze(model, tokenizer)}")
        if start is not None:
            print(f"  {agreement(embeddings(model, tokenizer), start)}")


if __name__ == "__main__":
    main()
