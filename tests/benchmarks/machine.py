"""What was measured, on what: the first lines of every result."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from service.engine.device import available_cpus
from tests.benchmarks.texts import ROOT

INTERESTING_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "sve",
)
PACKAGES = ("torch", "numpy", "tokenizers", "fastapi", "uvicorn", "orjson")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """load_average: of the last minute; while one engine after the other runs it is near the number of CPUs."""

    processor: str
    features: list[str]
    cpus: int
    memory_gib: int
    system: str
    python: str
    load_average: float
    commit: str
    date: str
    packages: dict[str, str]


def load_average() -> float:
    """Of the last minute; well over 0 before a benchmark begins, it says that others use the machine."""
    return round(os.getloadavg()[0], 2)


def describe() -> dict[str, Any]:
    """This machine and this tree, now."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    fields = dict(line.split(":", 1) for line in cpuinfo.split("\n\n")[0].splitlines() if ":" in line)
    values = {name.strip(): value.strip() for name, value in fields.items()}
    flags = set(values.get("flags", values.get("Features", "")).split())
    return asdict(
        Machine(
            processor=values.get("model name", platform.machine()),
            features=[flag for flag in INTERESTING_FLAGS if flag in flags],
            cpus=available_cpus(),
            memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            system=platform.platform(),
            python=platform.python_version(),
            load_average=load_average(),
            commit=_commit(),
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            packages={name: version(name) for name in PACKAGES},
        )
    )


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
