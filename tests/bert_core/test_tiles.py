from __future__ import annotations

import ctypes
import logging
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch
from torch import Tensor

import bert_core
from bert_core import tiles as module
from bert_core.tiles import tiles

NO_TILES = "no kernels for tiles: no compiler when this was installed, or a processor without AMX"
needs_tiles = pytest.mark.skipif(tiles() is None, reason=NO_TILES)
SOURCES = Path(bert_core.__file__).parent


@pytest.fixture
def looked_for_anew() -> Iterator[None]:
    tiles.cache_clear()
    yield
    tiles.cache_clear()


@contextmanager
def computing_threads(count: int) -> Iterator[None]:
    """PyTorch computes on so many."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_that_one_row_suffers(kernel: Callable[[Tensor], Tensor], given: Tensor, *, row: int, spoilt: Tensor) -> None:
    """With this row in place of its own, the answer to it is no number, and the others keep their bits."""
    clean = kernel(given)
    given[row] = spoilt
    got = kernel(given)
    assert bool(got[row].isnan().all())
    rest = [number for number in range(len(given)) if number != row]
    assert torch.equal(got[rest], clean[rest])


def was_built() -> bool:
    return any((SOURCES / f"_tiles{end}").is_file() for end in EXTENSION_SUFFIXES)


def test_the_kernels_are_built_where_they_can_be(tmp_path: Path) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or not shutil.which("cc"):
        pytest.skip("no C compiler, or not for this system")
    command = ["cc", "-c", str(SOURCES / "tile_product.c"), "-o", str(tmp_path / "tile_product.o")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a C compiler without AMX")
    assert was_built(), "there was no compiler when this package was installed: install it again"


@pytest.mark.skipif(not was_built(), reason=NO_TILES)
def test_they_work_where_the_processor_has_tiles() -> None:
    if "amx_bf16" not in Path("/proc/cpuinfo").read_text():
        assert tiles() is None
    else:
        ask_for_tiles, numbers_of_tiles = 0x1023, 18
        refused = ctypes.CDLL(None).syscall(158, ask_for_tiles, numbers_of_tiles)  # arch_prctl
        assert (tiles() is None) == bool(refused)


@pytest.mark.skipif(tiles() is None, reason=NO_TILES)
def test_they_run_on_pytorchs_own_threads() -> None:
    found = tiles()
    assert found is not None
    assert found.team is not None


@pytest.mark.usefixtures("looked_for_anew")
def test_without_the_library_there_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "tiles.py"))
    with caplog.at_level(logging.INFO):
        assert tiles() is None
    assert "no kernels for CPUs with AMX here" in caplog.text


@pytest.mark.usefixtures("looked_for_anew")
def test_a_library_that_cannot_be_loaded_is_told_of_and_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"_tiles{EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "tiles.py"))
    with caplog.at_level(logging.WARNING):
        assert tiles() is None
    assert "install this package again" in caplog.text


@pytest.mark.skipif(not was_built(), reason=NO_TILES)
@pytest.mark.usefixtures("looked_for_anew")
def test_a_library_of_other_sources_is_told_of_and_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "INTERFACE", -1)
    with caplog.at_level(logging.WARNING):
        assert tiles() is None
    assert "install this package again" in caplog.text
