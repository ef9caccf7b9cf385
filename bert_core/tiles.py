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

INTERFACE = 3
"""Changes with the functions of the library, here and in `tiles.c`."""

NUMBERS_IN_A_ROW = 32
"""bfloat16 numbers in a row of a tile."""

ROWS = 16
"""Rows of a tile."""


class Tiles:
    """The library of kernels.

    Attributes:
        library: its functions.
        team: the function that runs another on several threads, PyTorch's own, whatever implements it: two teams of
            threads would wait actively for each other's cores. None if PyTorch has none: kernels run on one thread.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        team = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
        self.team = None if team is None else ctypes.cast(team, ctypes.c_void_p)


@cache
def tiles() -> Tiles | None:
    """The kernels, or None where they were not built or the processor (or its system) has no tiles of bfloat16."""
    folder = Path(__file__).parent
    built = next((path for end in EXTENSION_SUFFIXES if (path := folder / f"_tiles{end}").is_file()), None)
    if built is None:
        logger.info("kernels for CPUs with AMX were not built: no C compiler when this package was installed")
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
