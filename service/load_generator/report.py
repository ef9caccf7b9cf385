"""The end of a run as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RATES = ("requests", "texts", "tokens")


def table(summary: Mapping[str, Any]) -> str:
    """Counts and rates, latencies in ms, and failures, of `Measurements.summary`."""
    lines = [f"{'':<22}{'count':>14}{'per second':>14}"]
    lines += [f"{name:<22}{summary[name]:>14,}{summary[f'{name}_per_second']:>14,.1f}" for name in RATES]
    if times := summary["times_ms"]:
        columns = next(iter(times.values()))
        lines += ["", f"{'ms':<22}" + "".join(f"{name:>10}" for name in columns)]
        lines += [
            f"{name.replace('_', ' '):<22}" + "".join(f"{value:>10,.2f}" for value in row.values())
            for name, row in times.items()
        ]
    failures = summary["failures"]
    lines += ["", f"{'failed':<22}{sum(failures.values()):>14,}"]
    lines += [f"  {name:<20}{count:>14,}" for name, count in failures.items()]
    return "\n".join(lines)
