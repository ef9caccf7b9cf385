"""Mixed traffic against known answers for a long time: `python -m tests.soak --minutes 30`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks import machine
from tests.benchmarks.tables import table
from tests.soak.questions import all_texts
from tests.soak.run import CONNECTIONS, FLAGS, Soak, soak

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"


def main() -> int:
    """Run, print and, with a name, write; the exit code is 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default: %(default)s)")
    parser.add_argument("--name", help="write results/DATE-NAME.json and .md in the benchmarks' folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), texts=all_texts(), seconds=60 * given.minutes)
    page = _page(found)
    print(page)
    if given.name:
        stem = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{given.name}"
        content = {
            "machine": machine.describe(),
            "seconds": found.seconds,
            "asked": dict(found.asked),
            "windows": [asdict(window) for window in found.windows],
            "misses": found.misses(),
        }
        stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        stem.with_suffix(".md").write_text(page, encoding="utf-8")
    return 1 if found.misses() else 0


def _page(found: Soak) -> str:
    described = machine.describe()
    rows = [
        (
            f"{found.seconds * (number + 1) / len(found.windows) / 60:.1f}",
            f"{window.requests:,}",
            f"{window.p50_ms:.1f}",
            f"{window.p99_ms:.1f}",
            f"{window.footprint.resident_bytes / 2**20:.1f}",
            str(window.footprint.descriptors),
            str(window.footprint.threads),
        )
        for number, window in enumerate(found.windows)
    ]
    asked = ", ".join(f"{count:,} {route}" for route, count in found.asked.most_common())
    misses = "\n".join(f"- {miss}" for miss in found.misses()) or "- none"
    return f"""# Soak, {described["date"]}

{described["processor"]}, {described["cpus"]} CPUs, shared by the service and its client; commit {described["commit"]}.
`bert-service serve {" ".join(FLAGS)}`, {CONNECTIONS} connections, {found.seconds / 60:g} minutes: {asked}.

Every answer is compared with one that was computed beforehand, one text at a time, without the service.

{table(("until minute", "requests", "p50 ms", "p99 ms", "resident MiB", "descriptors", "threads"), rows)}

Memory changes by {found.memory_change:.2%} in the second half; the p99 by {found.latency_drift:+.1%} in the last third.

Missed:
{misses}
"""


if __name__ == "__main__":
    sys.exit(main())
