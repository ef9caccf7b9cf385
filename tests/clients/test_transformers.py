"""What the pipelines of `transformers` answer on the same checkpoint, from which people come."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from transformers import pipeline

from tests.live_server import ROOT, LiveServer

FOLDER = str(ROOT / "weights" / "minilm-l6-bert-en")
MASKED = "She drank a cup of [MASK]."
TOLERANCE = 1e-4


def ask(server: LiveServer, path: str, body: dict[str, Any]) -> Any:
    return httpx.post(server.url + path, json=body).raise_for_status().json()


@pytest.mark.parametrize("options", [{"top_k": 7}, {"targets": ["coffee", "water"]}])
def test_fill_mask(server: LiveServer, options: dict[str, Any]) -> None:
    theirs = pipeline("fill-mask", model=FOLDER, dtype="float32")(MASKED, **options)
    ours = ask(server, "/fill-mask", {"inputs": MASKED, **options})
    assert [prediction["token"] for prediction in ours] == [prediction["token"] for prediction in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=TOLERANCE)
        assert one["token_str"] == other["token_str"]
        assert one["sequence"].lower() == other["sequence"]


def test_feature_extraction(server: LiveServer) -> None:
    [states] = pipeline("feature-extraction", model=FOLDER, dtype="float32")("The cat sat on the mat.")
    body = {"inputs": "The cat sat on the mat.", "pooling": "cls", "normalize": False}
    assert ask(server, "/embed", body)[0] == pytest.approx(states[0], abs=TOLERANCE)
