"""On a GPU: `python -m tests.benchmarks.gpu` checks every kernel and task, then measures BERT-base in bfloat16.

It takes less than four minutes. Weights are random: speed does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks import machine
from tests.benchmarks.gpu_measure import Measurement, Plan, full_plan, measure
from tests.bert_core import device_checks as model_checks
from tests.device_checks import Check
from tests.service.engine import device_checks as engine_checks

RESULTS = Path(__file__).parent / "results"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def checks(device: torch.device, *, texts: int) -> Iterator[Check]:
    """Every kernel, every task, and the shipped checkpoint on as many texts, against float32 on the CPU."""
    for dtype in DTYPES:
        for variant in model_checks.VARIANTS:
            yield from model_checks.checks(variant, device=device, dtype=dtype)
        with tempfile.TemporaryDirectory() as folder:
            yield from engine_checks.checks(Path(folder), device=device, dtype=dtype)
        yield from engine_checks.shipped_checks(device=str(device), dtype=dtype, texts=texts)
        calls = model_checks.varlen_calls(device=device, dtype=dtype)
        expected = 6 if device.type == "cuda" and dtype != torch.float32 else 0
        name = f"{str(dtype).removeprefix('torch.')}: calls of the kernel over offsets that are missing"
        yield Check(name=name, gap=abs(expected - calls), bound=0)


def page(found: Mapping[str, Any]) -> str:
    """The result in Markdown."""
    peak = found["peak"]
    machine_found = found["machine"]
    versions = f"torch {machine_found['packages']['torch']}, CUDA {found['cuda']}"
    lines = [
        f"# BERT-base, {found['dtype']}, {found['gpu']}",
        "",
        f"{machine_found['date']}, commit {machine_found['commit']}, {versions}, `{found['command']}`",
        "",
        f"Peak of a large matrix product, measured in the same run: {peak / 1e12:,.0f} TFLOP/s. "
        "Shares count the arithmetic of the whole trunk.",
        "",
        "## Sequences per second, equal lengths",
        "",
        *_table(
            ("tokens", "batch", "encoder", "share of peak", "[CLS] alone", "engine", "transformers SDPA", "ratio"),
            [_batch_row(batch, peak=peak) for batch in found["batches"]],
        ),
        "",
        f"## Sequences per second, lengths {found['mix']['mix']} (median/mean) in order of arrival",
        "",
        *_table(("program", "sequences/s", "share of peak"), _mix_rows(found["mix"], peak=peak)),
        "",
        "## Latency of one sequence, ms (median, 95th percentile)",
        "",
        *_table(
            ("tokens", *found["latencies"][0]["seconds"]),
            [
                (f"{one['length']}", *(f"{s['p50'] * 1e3:.3f}, {s['p95'] * 1e3:.3f}" for s in one["seconds"].values()))
                for one in found["latencies"]
            ],
        ),
        "",
        "## Checks against float32 on the CPU",
        "",
        f"{len(found['checks'])} checks; the closest to its bound:",
        "",
        *_table(("check", "gap", "bound"), _check_rows(found["checks"])),
    ]
    return "\n".join(lines) + "\n"


def _batch_row(batch: Mapping[str, Any], *, peak: float) -> tuple[str, ...]:
    rates, operations = batch["sequences_per_second"], batch["operations_per_second"]
    return (
        f"{batch['length']}",
        f"{batch['batch']}",
        f"{rates['encoder']:,.0f}",
        f"{operations['encoder'] / peak:.0%}",
        f"{rates['encoder, [CLS] alone']:,.0f}",
        f"{rates['engine']:,.0f}",
        f"{rates['transformers']:,.0f}",
        f"{rates['encoder'] / rates['transformers']:.2f}",
    )


def _mix_rows(mix: Mapping[str, Any], *, peak: float) -> list[tuple[str, ...]]:
    operations = mix["operations_per_second"]
    return [
        (name, f"{rate:,.0f}", f"{operations[name] / peak:.0%}") for name, rate in mix["sequences_per_second"].items()
    ]


def _check_rows(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    close = sorted(found, key=lambda check: -check["gap"] / max(check["bound"], 1e-30))[:8]
    return [(check["name"], f"{check['gap']:.1e}", f"{check['bound']:.1e}") for check in close]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (columns, ["---"] + ["---:"] * (len(columns) - 1), *rows)]


def run(plan: Plan, *, folder: Path, texts: int) -> int:
    """Check, measure, print and write; returns the exit code."""
    began = time.perf_counter()
    measurement = Measurement(plan)
    held: list[Check] = []
    for check in (measurement.agreement(), *checks(plan.device, texts=texts)):
        held.append(check)
        if not check.holds:
            print(check)
    missed = sum(not check.holds for check in held)
    print(f"{len(held) - missed} of {len(held)} checks hold, after {time.perf_counter() - began:.0f} s")
    if missed:
        return 1
    found = measure(measurement, plan) | {
        "gpu": torch.cuda.get_device_name(plan.device) if plan.device.type == "cuda" else "no GPU",
        "cuda": torch.version.cuda,
        "machine": machine.describe(),
        "command": "python -m tests.benchmarks.gpu",
        "checks": [{"name": check.name, "gap": check.gap, "bound": check.bound} for check in held],
    }
    text = page(found)
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{datetime.now(UTC):%Y-%m-%d}-gpu"
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(text, encoding="utf-8")
    print(f"written: {stem}.json, .md, after {time.perf_counter() - began:.0f} s")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the result goes (default: %(default)s)")
    folder = parser.parse_args(arguments).folder
    if not torch.cuda.is_available():
        print(f"no CUDA device: this torch is {torch.__version__}", file=sys.stderr)
        return 2
    return run(full_plan(torch.device("cuda", torch.cuda.current_device())), folder=folder, texts=64)


if __name__ == "__main__":
    sys.exit(main())
