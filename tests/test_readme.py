"""The README's examples, run as a reader would paste them, against a live server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from service.settings import Settings
from tests.live_server import ROOT, LiveServer, live_server
from tests.readme import OPERATIONS, with_current_metrics, with_current_parts
from tests.readme import README as README_FILE

README = README_FILE.read_text(encoding="utf-8")

# A curl command, and the answer in the block after it.
EXAMPLES = re.findall(r"```bash\n(curl [^`]*?)```\s*```json\n(.*?)```", README, re.DOTALL)

# The README shows what one machine answered; another CPU, or bfloat16, differs a little.
TOLERANCE = 0.02


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("readme"), "--device", "cpu") as running:
        yield running


def assert_like(answer: Any, shown: Any) -> None:
    """The same JSON, numbers to the tolerance."""
    if isinstance(shown, dict):
        assert answer.keys() == shown.keys()
        for key, value in shown.items():
            assert_like(answer[key], value)
    elif isinstance(shown, list):
        assert len(answer) == len(shown)
        for one, other in zip(answer, shown, strict=True):
            assert_like(one, other)
    elif isinstance(shown, float):
        assert answer == pytest.approx(shown, abs=TOLERANCE * max(1.0, abs(shown)))
    else:
        assert answer == shown


def test_there_are_examples_of_each_endpoint_and_a_chinese_one() -> None:
    commands = "".join(command for command, _ in EXAMPLES)
    assert all(route in commands for route in ("/fill-mask", "/next-sentence", "/embed"))
    assert re.search("[\u4e00-\u9fff]", commands)


@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
def test_the_answer_is_what_the_readme_shows(server: LiveServer, command: str, shown: str) -> None:
    here = command.replace("http://localhost:8000", server.url)
    assert here != command
    done = subprocess.run(["bash", "-c", here], capture_output=True, check=True, timeout=60)
    assert_like(json.loads(done.stdout), json.loads(shown))


def test_the_library_example_runs_as_shown() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    shown = re.search(r"print\(.*\)  # (\w+)", code)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [shown[1]]


def test_the_file_tree_the_settings_and_the_errors_are_those_of_the_code() -> None:
    assert with_current_parts(README) == README, "run `python -m tests.readme`"
    assert "engine.py" in README
    assert "`MAX_BATCH_TOKENS`" in README
    assert "| none | `SSL_KEYFILE_PASSWORD` |" in README
    assert "| 429 | `Overloaded` | `overloaded` |" in README


def test_the_metrics_for_operators_are_those_of_the_code() -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    assert with_current_metrics(text) == text, "run `python -m tests.readme`"
    assert "| `bert_items_dropped_total` | counter | `reason`: cancelled, deadline, unhealthy |" in text


def test_operators_are_sent_only_to_metrics_settings_and_files_that_exist() -> None:
    text = OPERATIONS.read_text(encoding="utf-8")
    table = text[text.index("| metric | type |") :]
    for name in re.findall(r"`((?:te|bert)_[a-z_]+)", text):
        assert any(f"| `{metric}` |" in table for metric in (name, re.sub("_(sum|bucket)$", "", name)))
    flags = {f"--{name.replace('_', '-')}" for name in Settings.model_fields} | {"--no-access-log"}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= flags
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (OPERATIONS.parent / path).exists()
