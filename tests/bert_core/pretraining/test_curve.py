"""The picture is well-formed and shows what the log holds."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from bert_core.pretraining.curve import MOST_POINTS, curve

SVG = "{http://www.w3.org/2000/svg}"


def lines(entries: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Class to points, of the lines of the first panel and then of the second."""
    found: dict[str, list[str]] = {}
    for line in ElementTree.fromstring(curve(entries)).iter(f"{SVG}polyline"):
        found.setdefault(line.get("class") or "", []).append(line.get("points") or "")
    return found


def test_losses_fall_and_accuracies_rise() -> None:
    entries: list[dict[str, Any]] = [
        {"step": step, "mlm_loss": 8 - step / 10, "nsp_loss": 0.7, "mlm_accuracy": step / 100, "nsp_accuracy": 0.5}
        for step in range(10, 51, 10)
    ]
    entries.append({"step": 50, "validation": {"mlm_loss": 4.0, "mlm_accuracy": 0.4, "nsp_loss": None}})
    found = lines(entries)
    loss, accuracy = found["mlm training"]
    heights = [[float(point.split(",")[1]) for point in points.split()] for points in (loss, accuracy)]
    assert len(heights[0]) == 5
    assert heights[0] == sorted(heights[0])  # down is a larger y
    assert heights[1] == sorted(heights[1], reverse=True)
    assert found["mlm validation"][0].count(",") == 1
    assert found["nsp validation"] == ["", ""]


@pytest.mark.parametrize("entries", [[], [{"step": 0}], [{"step": 3, "mlm_loss": 0.0}]])
def test_short_logs(entries: list[dict[str, Any]]) -> None:
    assert "NaN" not in curve(entries)
    ElementTree.fromstring(curve(entries))


def test_a_long_log_is_thinned() -> None:
    entries = [{"step": step, "mlm_loss": 1.0} for step in range(10 * MOST_POINTS + 1)]
    assert len(re.findall(",", lines(entries)["mlm training"][0])) <= MOST_POINTS
