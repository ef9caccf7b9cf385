"""Engines over tiny models, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

from bert_core import BertForPreTraining, BertTokenizer
from service.engine.engine import Engine
from service.engine.sentence_files import SentenceFiles
from service.tasks import Pooling
from tests.tiny import tiny_config, tiny_model, write_tiny_vocabulary

# More rows in the matrix than pieces in the vocabulary file, as some checkpoints have.
ENGINE_CONFIG = tiny_config(vocab_size=103)


def tiny_engine(
    folder: Path,
    model: BertForPreTraining | None = None,
    *,
    pooling: Pooling | None = None,
    sentence_files: SentenceFiles | None = None,
    threads: int = 1,
) -> Engine:
    """An engine over a tiny model and the tiny vocabulary, which is written to `folder`."""
    model = model or tiny_model(ENGINE_CONFIG)
    write_tiny_vocabulary(folder)
    tokenizer = BertTokenizer.from_pretrained(folder, pair_segment_ids=model.config.pair_segment_ids)
    files = sentence_files or SentenceFiles()
    return Engine(model, tokenizer=tokenizer, sentence_files=files, model_id="tiny", pooling=pooling, threads=threads)
