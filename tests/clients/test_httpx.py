from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import httpx
import numpy as np
import pytest

from service.tasks import FloatVector
from tests.clients.conftest import TEXTS, assert_same, scaled_head
from tests.live_server import LiveServer


@pytest.fixture
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url) as client:
        yield client


@pytest.mark.parametrize("path", ["/embed", "/"])
def test_embeddings_in_base64(client: httpx.Client, vectors: FloatVector, path: str) -> None:
    answer = client.post(path, json={"inputs": TEXTS, "encoding_format": "base64", "dimensions": 13})
    decoded = [np.frombuffer(base64.b64decode(text), "<f4") for text in answer.json()]
    assert_same(decoded, scaled_head(vectors, 13))


def test_a_faulty_text_among_others(client: httpx.Client) -> None:
    answer = client.post("/fill-mask", json={"inputs": ["A cup of [MASK].", "no mask"], "details": True})
    [filled, faulty] = answer.json()["results"]
    assert filled["masks"][0]["predictions"]
    assert faulty["error_type"] == "Validation"


def test_pairs_are_judged(client: httpx.Client) -> None:
    key, door, bonds = "He put the key in the lock.", "The door would not open.", TEXTS[2]
    answer = client.post("/next-sentence", json={"inputs": [[key, door], [key, bonds]]})
    assert [pair["label"] for pair in answer.json()] == ["is_next", "not_next"]


def test_requests_side_by_side_get_their_own_answers(server: LiveServer, vectors: FloatVector) -> None:
    async def ask() -> list[list[float]]:
        async with httpx.AsyncClient(base_url=server.url) as client:
            answers = await asyncio.gather(*(client.post("/embed", json={"inputs": text}) for text in TEXTS * 17))
        return [answer.json()[0] for answer in answers]

    assert_same(asyncio.run(ask()), np.tile(vectors, (17, 1)))
