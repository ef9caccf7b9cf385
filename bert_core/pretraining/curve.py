"""The log of a run as a picture: losses on the left, accuracies on the right, over the steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 960, 400
PANEL = 400
LEFT, TOP, BOTTOM = 60, 60, 340
MOST_POINTS = 400

Points = Sequence[tuple[float, float]]

_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.grid { stroke: #d0d7de }
.mlm { stroke: #0969da } .nsp { stroke: #bf3989 }
polyline { fill: none; stroke-width: 2 }
.training { opacity: 0.35 }
</style>"""


def curve(entries: Iterable[Mapping[str, Any]]) -> str:
    """An SVG document.

    Args:
        entries: lines of the log; each has a `step`, and `mlm_loss`, `nsp_loss`, `mlm_accuracy` and `nsp_accuracy`, by
            themselves of training, or within `validation` of held-out text.
    """
    entries = list(entries)
    parts = ['<text class="title" x="16" y="28">Training (pale) and held-out text</text>']
    for number, measure in enumerate(("loss", "accuracy")):
        lines = {}
        for task in ("mlm", "nsp"):
            name = f"{task}_{measure}"
            lines[f"{task} training"] = _points(entries, name)
            lines[f"{task} validation"] = _points([_validation(entry) for entry in entries], name)
        parts.append(_panel(measure, lines, x=number * (PANEL + 60), top=1.0 if measure == "accuracy" else None))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f'{_STYLE}<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _validation(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"step": entry["step"], **(entry.get("validation") or {})}


def _points(entries: Sequence[Mapping[str, Any]], name: str) -> Points:
    found = [(entry["step"], entry[name]) for entry in entries if entry.get(name) is not None]
    # A long run has more lines than a picture has columns.
    size = -(-len(found) // MOST_POINTS) or 1
    chunks = [found[begin : begin + size] for begin in range(0, len(found), size)]
    return [(chunk[-1][0], sum(value for _, value in chunk) / len(chunk)) for chunk in chunks]


def _panel(measure: str, lines: Mapping[str, Points], *, x: float, top: float | None) -> str:
    values = [value for points in lines.values() for _, value in points]
    steps = [step for points in lines.values() for step, _ in points]
    highest = top or max(values, default=1.0) or 1.0
    last = max(steps, default=1) or 1
    left, right = x + LEFT, x + LEFT + PANEL - 20

    def place(step: float, value: float) -> str:
        return (
            f"{left + (right - left) * step / last:.1f},{BOTTOM - (BOTTOM - TOP) * min(value, highest) / highest:.1f}"
        )

    parts = [f'<text x="{left}" y="{TOP - 12}">{escape(measure)}</text>']
    for quarter in range(5):
        y = BOTTOM - (BOTTOM - TOP) * quarter / 4
        parts.append(f'<line class="grid" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{highest * quarter / 4:.3g}</text>')
    parts.append(f'<text x="{right}" y="{BOTTOM + 20}" text-anchor="end">step {last:,}</text>')
    for name, points in lines.items():
        task, kind = name.split()
        marks = " ".join(place(*point) for point in points)
        parts.append(f'<polyline class="{task} {kind}" points="{marks}"/>')
    for number, (task, title) in enumerate((("mlm", "masked LM"), ("nsp", "next sentence"))):
        y, begin = BOTTOM + 40, left + number * 140
        parts.append(f'<polyline class="{task}" points="{begin},{y - 4} {begin + 18},{y - 4}"/>')
        parts.append(f'<text x="{begin + 24}" y="{y}">{title}</text>')
    return "".join(parts)
