from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bert_core
from bert_core import tiles as module
from bert_core.tiles import tiles

NO_TILES = "no kernels for tiles: no compiler when this was installed, or a processor without AMX"


@pytest.fixture
def looked_for_anew() -> Iterator[None]:
    tiles.cache_clear()
    yield
    tiles.cache_clear()


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64") or not shutil.which("cc"),
    reason="no C compiler, or not for this system",
)
def test_the_kernels_are_built_where_they_can_be() -> None:
    assert list(Path(bert_core.__file__).parent.glob("_tiles*.so"))


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="no Linux")
def test_they_work_where_the_processor_has_tiles() -> None:
    has_tiles = "amx_bf16" in Path("/proc/cpuinfo").read_text()
    was_built = any(Path(bert_core.__file__).parent.glob("_tiles*.so"))
    assert (tiles() is not None) == (has_tiles and was_built)


@pytest.mark.usefixtures("looked_for_anew")
def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "tiles.py"))
    assert tiles() is None
