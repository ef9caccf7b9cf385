"""One server for all clients: the shipped checkpoint, in its own process, asked over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from service.tasks import FloatVector
from tests.live_server import LiveServer, live_server

TEXTS = ["The cat sat on the mat.", "A kitten was sitting on a rug.", "The bond market fell today."]

MODEL_NAME = "weights/minilm-l6-bert-en"

# Other requests share the passes, and another batch may round differently.
TOLERANCE = 1e-5


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("clients"), "--device", "cpu", "--dtype", "float32") as running:
        yield running


@pytest.fixture(scope="session")
def vectors(server: LiveServer) -> FloatVector:
    """What `/embed` itself answers for `TEXTS`, `[3, D]`."""
    answer = httpx.post(f"{server.url}/embed", json={"inputs": TEXTS})
    return np.array(answer.raise_for_status().json(), np.float32)


@pytest.fixture(autouse=True)
def _no_keys_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own keys, addresses and proxies are none of these tests' business."""
    for name in os.environ:
        if name.startswith(("OPENAI_", "HF_TOKEN", "HUGGING")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def assert_same(vectors: object, expected: FloatVector) -> None:
    """Vectors from a client, `[N, D]`, are those expected."""
    assert np.array(vectors, np.float32).shape == expected.shape
    assert np.abs(np.array(vectors, np.float32) - expected).max() <= TOLERANCE


def scaled_head(vectors: npt.ArrayLike, dimensions: int) -> FloatVector:
    """The leading components, scaled to length 1."""
    head = np.array(vectors, np.float32)[:, :dimensions]
    lengths: FloatVector = np.linalg.norm(head, axis=1, keepdims=True)
    return head / lengths
