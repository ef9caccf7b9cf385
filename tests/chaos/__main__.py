"""All kinds of clients at once, for as long as you like: `python -m tests.chaos --minutes 3`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.chaos.run import run


def main() -> int:
    """Run, and tell what was answered and what was wrong; the exit code is 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="how long (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of all chances (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chaos, footprints = run(Path(folder), seconds=60 * given.minutes, seed=given.seed)
    for name, count in sorted(chaos.counts.items()):
        print(f"{count:>9,}  {name}")
    slowest = max(chaos.live_seconds)
    print(f"\n/health/live: median {median(chaos.live_seconds) * 1000:.1f} ms, slowest {slowest * 1000:.0f} ms")
    for name, footprint in footprints.items():
        print(
            f"{name}: {footprint.descriptors} descriptors, {footprint.threads} threads, "
            f"{footprint.resident_bytes / 1e6:.0f} MB"
        )
    for fault, count in chaos.faults.most_common():
        print(f"FAULT, {count} times: {fault}")
    return 1 if chaos.faults else 0


if __name__ == "__main__":
    sys.exit(main())
