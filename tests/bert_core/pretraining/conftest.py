from __future__ import annotations

from pathlib import Path

import pytest

from bert_core.tokenizer import BertTokenizer
from tests.tiny import write_tiny_vocabulary


@pytest.fixture
def tokenizer(tmp_path: Path) -> BertTokenizer:
    write_tiny_vocabulary(tmp_path)
    return BertTokenizer.from_pretrained(tmp_path)
