"""Bar and line charts as SVG, written out by hand: no plotting library, one readable file each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 16px; font-weight: 600 }
.note { font-size: 11px; fill: #57606a }
.grid { stroke: #d0d7de; stroke-width: 1 }
.ours { fill: #0969da } .peer { fill: #afb8c1 }
</style>"""
COLOURS = ("#0969da", "#54aeff", "#6e7781", "#afb8c1", "#bf3989", "#1a7f37")

WIDTH = 760
ROW = 24
LABELS = 300


@dataclass(frozen=True, slots=True)
class Bar:
    """`ours` is drawn in colour."""

    label: str
    value: float
    ours: bool


def bar_chart(title: str, bars: Sequence[Bar], *, note: str) -> str:
    """Horizontal bars, the longest first."""
    ordered = sorted(bars, key=lambda bar: bar.value, reverse=True)
    largest = max((bar.value for bar in ordered), default=0) or 1.0
    room = WIDTH - LABELS - 80
    parts = [_text(16, 26, title, kind="title"), _text(16, 44, note, kind="note")]
    for number, bar in enumerate(ordered):
        top = 60 + number * ROW
        length = room * bar.value / largest
        parts.append(_text(LABELS - 8, top + 15, bar.label, anchor="end"))
        parts.append(
            f'<rect class="{"ours" if bar.ours else "peer"}" x="{LABELS}" y="{top + 2}" '
            f'width="{length:.1f}" height="{ROW - 6}" rx="2"/>'
        )
        parts.append(_text(LABELS + length + 6, top + 15, f"{bar.value:,.0f}"))
    return _document(parts, height=72 + len(ordered) * ROW)


def line_chart(
    title: str, lines: Mapping[str, Mapping[int, float]], *, note: str, x_label: str, height: int = 400
) -> str:
    """Lines over a logarithmic x axis with a tick at each x that occurs; y begins at 0."""
    places = sorted({x for values in lines.values() for x in values})
    largest = _round_up(max((y for values in lines.values() for y in values.values()), default=1.0))
    left, right, top, bottom = 80, WIDTH - 200, 64, height - 48

    def across(x: int) -> float:
        if len(places) < 2:
            return left
        return left + (right - left) * math.log(x / places[0]) / math.log(places[-1] / places[0])

    def down(y: float) -> float:
        return bottom - (bottom - top) * y / largest

    parts = [_text(16, 26, title, kind="title"), _text(16, 44, note, kind="note")]
    for step in range(5):
        y = largest * step / 4
        parts.append(f'<line class="grid" x1="{left}" y1="{down(y):.1f}" x2="{right}" y2="{down(y):.1f}"/>')
        parts.append(_text(left - 8, down(y) + 4, f"{y:,.0f}", anchor="end"))
    parts += [_text(across(x), bottom + 20, str(x), anchor="middle") for x in places]
    parts.append(_text((left + right) / 2, bottom + 40, x_label, kind="note", anchor="middle"))
    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{across(x):.1f},{down(values[x]):.1f}" for x in sorted(values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        legend = top + 10 + number * 20
        parts.append(f'<rect x="{right + 16}" y="{legend - 9}" width="12" height="10" fill="{colour}"/>')
        parts.append(_text(right + 34, legend, name))
    return _document(parts, height=height)


def _round_up(value: float) -> float:
    """To two leading digits, so that the axis ends above the highest point at a plain number."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    return math.ceil(value / step / 4) * step * 4


def _text(x: float, y: float, content: str, *, kind: str = "", anchor: str = "start") -> str:
    attributes = f' class="{kind}"' if kind else ""
    return f'<text{attributes} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def _document(parts: Sequence[str], *, height: int) -> str:
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
    return "\n".join([begin, STYLE, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", ""])
