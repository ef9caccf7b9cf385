"""Load a checkpoint in a process of its own and print the bytes that it took at most: `python -m … WARM_UP FOLDER`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from bert_core import load_pretrained


def memory_bytes(field: str) -> int:
    """`VmRSS`, resident memory now with the pages of mapped files, or `VmHWM`, the most since the last reset."""
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found[1])


def main() -> None:
    """The first folder is loaded unmeasured, so that imports and caches do not count."""
    warm_up, folder = sys.argv[1:]
    load_pretrained(warm_up)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_bytes("VmRSS")
    model = load_pretrained(folder)
    print(memory_bytes("VmHWM") - before)
    del model


if __name__ == "__main__":
    main()
