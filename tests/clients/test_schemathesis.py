"""What can be generated from the OpenAPI document is answered as it says, with no 5xx that nobody asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.live_server import LiveServer

CONFIG = Path(__file__).parent / "schemathesis.toml"


@pytest.mark.timeout(260)
def test_answers_are_as_documented(server: LiveServer, tmp_path: Path) -> None:
    url = f"{server.url}/openapi.json"
    operations = sum(len(item) for item in httpx.get(url).json()["paths"].values())
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "--config-file", CONFIG, "run", url, "--no-color"],
        cwd=tmp_path,  # where it keeps what it found
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Tested: {operations}\n" in done.stdout
    assert "✅ Stateful" in done.stdout
