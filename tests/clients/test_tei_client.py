from __future__ import annotations

import asyncio

import numpy as np
from tei_client import HttpClient
from tei_client.models import TruncationDirection

from service.tasks import FloatVector
from tests.clients.conftest import MODEL_NAME, TEXTS, assert_same, scaled_head
from tests.live_server import LiveServer


def test_facts_are_understood(server: LiveServer) -> None:
    client = HttpClient(server.url)
    assert client.health()
    info = client.info()
    assert info.server_model_id == MODEL_NAME
    assert info.server_model_metadata.pooling == "mean"
    assert (info.max_input_length, info.max_client_batch_size) == (512, 2048)
    client.client.close()


def test_embeddings_are_those_of_embed(server: LiveServer, vectors: FloatVector) -> None:
    client = HttpClient(server.url)
    assert_same(client.embed(TEXTS), vectors)
    assert_same(client.embed(TEXTS[0]), vectors[:1])
    unscaled = client.embed(TEXTS, normalize=False, truncate=True, truncation_direction=TruncationDirection.Left)
    assert_same(scaled_head(unscaled, 384), vectors)
    client.client.close()


def test_token_vectors_and_their_tokens(server: LiveServer, vectors: FloatVector) -> None:
    client = HttpClient(server.url)
    [tokens] = client.tokenize(TEXTS[0])
    assert tokens.get_ids() == [101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102]
    assert [TEXTS[0][token.start : token.stop] for token in tokens.tokens[1:3]] == ["The", "cat"]
    assert client.decode([tokens.get_ids()]) == ["the cat sat on the mat."]
    states = np.array(client.embed_all(TEXTS[0])[0], np.float32)
    assert states.shape == (9, 384)
    assert_same(scaled_head(states.mean(0, keepdims=True), 384), vectors[:1])
    client.client.close()


def test_asynchronous_calls(server: LiveServer, vectors: FloatVector) -> None:
    async def ask() -> None:
        client = HttpClient(server.url)
        assert await client.async_health()
        assert_same(await client.async_embed(TEXTS), vectors)
        await client.async_client.aclose()
        client.client.close()

    asyncio.run(ask())
