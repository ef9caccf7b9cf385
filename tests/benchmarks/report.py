"""Results as JSON, a Markdown page and SVG charts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.benchmarks import machine, tables
from tests.benchmarks.charts import Bar, bar_chart, line_chart
from tests.benchmarks.options import Options

RESULTS = Path(__file__).parent / "results"


def publish(sections: Mapping[str, Any], *, options: Options) -> None:
    """Print the page; write everything if the options name the result.

    Args:
        sections: what was measured, of `engine`, `http`, `shapes` and `cost`.
    """
    command = " ".join(["python -m", _module(), *sys.argv[1:]])
    found = {"machine": machine.describe(), "command": command, **sections}
    stem = f"{datetime.now(UTC):%Y-%m-%d}-{options.name}"
    pictures = charts(found)
    page = tables.page(found, pictures=[f"{stem}-{name}.svg" for name in pictures] if options.name else [])
    print(page)
    if options.name is None:
        return
    (RESULTS / f"{stem}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (RESULTS / f"{stem}.md").write_text(page, encoding="utf-8")
    for name, content in pictures.items():
        (RESULTS / f"{stem}-{name}.svg").write_text(content, encoding="utf-8")
    print(f"written: {RESULTS / stem}.*")


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).name


def charts(found: Mapping[str, Any]) -> dict[str, str]:
    """The pictures of what was measured, by name."""
    note = _note(found["machine"])
    pictures = {}
    if engines := found.get("engine", {}).get("engines"):
        bars = [Bar(one["name"], one["texts_per_second"], one["ours"]) for one in engines]
        pictures["engine"] = bar_chart("Engines in process, texts per second", bars, note=note)
    if rows := found.get("http", {}).get("rows"):
        bars = [Bar(row["name"], row["requests_per_second"], row["server"].startswith("bert-service")) for row in rows]
        pictures["http"] = bar_chart("Over HTTP, 32 connections, requests per second", bars, note=note)
    if shapes := found.get("shapes"):
        pictures["lengths"] = line_chart(
            "Tokens per second by length of text", _numbered(shapes["lengths"]), note=note, x_label="tokens per text"
        )
        pictures["batches"] = line_chart(
            "Texts per second by size of batch", _numbered(shapes["batches"]), note=note, x_label="texts per batch"
        )
        rates = {
            name: {connections: one["requests_per_second"] for connections, one in values.items()}
            for name, values in shapes["connections"].items()
        }
        pictures["connections"] = line_chart(
            "Requests per second by connections", _numbered(rates), note=note, x_label="connections"
        )
    return pictures


def _numbered(lines: Mapping[str, Mapping[Any, float]]) -> dict[str, dict[int, float]]:
    """Keys as numbers, which JSON makes strings of."""
    return {name: {int(x): y for x, y in values.items()} for name, values in lines.items()}


def _note(described: Mapping[str, Any]) -> str:
    return f"{described['processor']}, {described['cpus']} CPUs, {described['date']}"
