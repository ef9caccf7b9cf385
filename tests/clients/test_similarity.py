"""`sentence_similarity` of huggingface_hub."""

from __future__ import annotations

import asyncio

import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient

from service.tasks import FloatVector
from tests.clients.conftest import TEXTS, TOLERANCE
from tests.live_server import LiveServer


def test_sentences_are_compared(server: LiveServer, vectors: FloatVector) -> None:
    first, *others = TEXTS
    cosines = (vectors[1:] @ vectors[0]).tolist()
    client = InferenceClient(model=f"{server.url}/similarity")
    assert client.sentence_similarity(first, others) == pytest.approx(cosines, abs=TOLERANCE)

    async def ask() -> list[float]:
        async with AsyncInferenceClient(model=f"{server.url}/similarity") as asynchronous:
            similarities: list[float] = await asynchronous.sentence_similarity(first, others)
            return similarities

    assert asyncio.run(ask()) == pytest.approx(cosines, abs=TOLERANCE)
