from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants

from bert_core import save_pretrained
from tests.fake_hub import FakeHub, fake_hub, files_of
from tests.tiny import tiny_model, write_tiny_vocabulary

REPOSITORY = "some-org/tiny-bert"


def write_checkpoint(folder: Path) -> Path:
    """A whole checkpoint of a tiny model."""
    save_pretrained(tiny_model(), folder)
    write_tiny_vocabulary(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}', encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 29}', encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture
def hub(checkpoint: Path) -> Iterator[FakeHub]:
    with fake_hub(REPOSITORY, files=files_of(checkpoint)) as running:
        yield running


@pytest.fixture
def cache(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The hub's client of this process, pointed at the fake one; it reads its variables only at import."""
    cache = tmp_path / "home" / "hub"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield cache
    huggingface_hub.close_session()


@pytest.fixture
def environment(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    """The same, the cache too, for a process of its own."""
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_sesame"}
