"""A short form of the fuzzing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, Target


@pytest.fixture(scope="module", params=sorted(TARGETS))
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    name: str = request.param
    folder: Path = tmp_path_factory.mktemp(name)
    return TARGETS[name](folder)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=600))
def test_any_bytes_are_taken(target: Target, data: bytes) -> None:
    target(data)


@settings(max_examples=150, deadline=None)
@given(numbers=st.binary(min_size=10, max_size=10), text=st.text(max_size=300))
def test_any_text_is_taken(target: Target, numbers: bytes, text: str) -> None:
    target(numbers + text.encode("utf-8", "surrogatepass"))
