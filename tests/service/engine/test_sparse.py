from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import BertWordPieceTokenizer

from bert_core import BertForPreTraining
from bert_core.tokenizer import BertTokenizer
from service.engine.engine import Engine
from service.engine.sentence_files import SentenceFiles
from service.engine.sparse import vocabulary_weights
from service.tasks import EmbedSparse, EmbedSparseResult
from tests.service.engine.tiny_engine import ENGINE_CONFIG, tiny_engine
from tests.tiny import TINY_VOCABULARY, tiny_model

TEXTS = ["paris is the capital of france", "hello", "do you like cookies? [MASK]"]


def ask(engine: Engine, *texts: str) -> list[EmbedSparseResult]:
    results = engine.run([engine.encode(EmbedSparse(text=text)) for text in texts])
    return [result for result in results if isinstance(result, EmbedSparseResult)]


def weights(engine: Engine, model: BertForPreTraining, text: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """By a plain call, over the whole matrix."""
    [sequence] = engine.encode(EmbedSparse(text=text)).sequences
    with torch.no_grad():
        logits_LV = model(torch.tensor([sequence.ids])).prediction_logits[0]
    return torch.log(1 + torch.relu(logits_LV)).max(0).values.numpy()


@pytest.mark.parametrize("rows_at_once", [512, 7, 1])
def test_weights_are_those_of_splade_however_the_rows_are_split(
    tmp_path: Path, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(ENGINE_CONFIG)
    engine = tiny_engine(tmp_path, model)
    expected = [weights(engine, model, text)[:99] for text in TEXTS]
    assert all(0 < np.count_nonzero(row) < 99 for row in expected)
    monkeypatch.setattr("service.engine.sparse.ROWS_AT_ONCE", rows_at_once)
    for result, row in zip(ask(engine, *TEXTS), expected, strict=True):
        assert result.indices.tolist() == np.flatnonzero(row).tolist()
        assert np.abs(result.values - row[result.indices]).max() <= 1e-5
        assert result.values.dtype == np.float32


def eager_model() -> BertForPreTraining:
    """Every piece has some weight in any text."""
    model = tiny_model(ENGINE_CONFIG)
    assert model.mlm is not None
    with torch.no_grad():
        model.mlm.decoder.bias.add_(50.0)
    return model


def test_ids_past_the_vocabulary_have_no_weight(tmp_path: Path) -> None:
    [result] = ask(tiny_engine(tmp_path, eager_model()), "king")
    assert result.indices.tolist() == [*range(99)]


def test_ids_that_the_vocabulary_skips_have_no_weight(tmp_path: Path) -> None:
    vocabulary = {piece: number for number, piece in enumerate(TINY_VOCABULARY) if number != 50}
    BertWordPieceTokenizer(vocabulary).save(str(tmp_path / "tokenizer.json"))
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    engine = Engine(eager_model(), tokenizer=tokenizer, sentence_files=SentenceFiles(), model_id="tiny", threads=1)
    [result] = ask(engine, "king")
    assert result.indices.tolist() == [*range(50), *range(51, 99)]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_value_that_is_not_finite_stays_with_its_sequence(value: float) -> None:
    model = tiny_model(ENGINE_CONFIG)
    assert model.mlm is not None
    lengths = [3, 5, 2]
    hidden_XD = torch.randn(10, 20, generator=torch.Generator().manual_seed(1))
    hidden_XD[4, 6] = value
    with torch.no_grad():
        weights_NV = vocabulary_weights(
            hidden_XD,
            offsets_N1=torch.tensor([*accumulate(lengths, initial=0)]),
            head=model.mlm,
            vocab_size=99,
            unused_ids_U=torch.tensor([], dtype=torch.long),
        )
    assert weights_NV.isfinite().all(1).tolist() == [True, False, True]
