"""Kernels for a CPU's matrix tiles (AMX), in C: found, loaded and asked whether they work here.

They are built when the package is installed, where there is a C compiler.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

logger = logging.getLogger(__name__)

INTERFACE = 4
"""Changes with the functions of the library and what they are given, here and in `tiles.c`."""

NUMBERS_IN_A_ROW = 32
"""bfloat16 numbers in a row of a tile."""

ROWS = 16
"""Rows of a tile."""

_BAD_OFFSETS = 2


class Tiles:
    """The library of kernels.

    Attributes:
        library: its functions.
        team: the function that runs another on several threads, PyTorch's own, whatever implements it: two teams of
            threads would wait actively for each other's cores. None if PyTorch has none: kernels run on one thread.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        pointer, number, threads = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
        library.tile_attention.argtypes = [*[pointer] * 4, *[number] * 3, *[pointer] * 2, *[number] * 3]
        library.tile_attention.argtypes += [pointer, threads]
        library.tile_product.argtypes = [*[pointer] * 6, *[number] * 6, ctypes.c_int, pointer, threads]
        library.tile_product.restype = None
        library.layer_norm.argtypes = [*[pointer] * 4, *[number] * 3, ctypes.c_float, pointer, threads]
        library.layer_norm.restype = None
        library.tile_encoder.argtypes = [pointer, number, *[pointer] * 2, number, *[pointer] * 6, threads]
        team = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
        self.team = None if team is None else ctypes.cast(team, ctypes.c_void_p)


def raise_fault(fault: int) -> None:
    """Say what a kernel found wrong, by its number in `tiles.h`; 0 is nothing.

    Raises:
        MemoryError: none left for a thread's part of the work.
        ValueError: offsets that do not begin at 0 or descend, or queries without keys.
    """
    if fault == _BAD_OFFSETS:
        raise ValueError("attention: offsets that do not begin at 0 or descend, or queries without keys")
    if fault:
        raise MemoryError("attention: no memory left for scores")


@cache
def tiles() -> Tiles | None:
    """The kernels, or None where they were not built or the processor (or its system) has no tiles of bfloat16."""
    folder = Path(__file__).parent
    built = next((path for end in EXTENSION_SUFFIXES if (path := folder / f"_tiles{end}").is_file()), None)
    if built is None:
        logger.info("no kernels for CPUs with AMX here: a C compiler builds them when this package is installed")
        return None
    try:
        library = ctypes.CDLL(str(built))
        interface: Callable[[], int] = library.tiles_interface
        work: Callable[[], int] = library.tiles_work
        is_ours = interface() == INTERFACE
    except (OSError, AttributeError):
        is_ours = False
    if not is_ours:
        logger.warning("%s was built from other sources: PyTorch's kernels serve; install this package again", built)
        return None
    return Tiles(library) if work() else None
