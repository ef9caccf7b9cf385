from __future__ import annotations

import asyncio

import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from service.tasks import FloatVector
from tests.clients.conftest import TEXTS, assert_same, scaled_head
from tests.live_server import LiveServer

MASKED = "She drank a cup of [MASK]."


def test_masks_are_filled(server: LiveServer) -> None:
    client = InferenceClient(model=f"{server.url}/fill-mask")
    best, second = client.fill_mask(MASKED, top_k=2)
    assert (best.token_str, best.token, best.sequence) == ("coffee", 4157, "She drank a cup of coffee.")
    assert best.score == pytest.approx(0.273, abs=0.002)
    assert second.token_str == "tea"


def test_targets_are_scored(server: LiveServer) -> None:
    client = InferenceClient(model=f"{server.url}/fill-mask")
    predictions = client.fill_mask(MASKED, targets=["hot chocolate", "coffee"])
    assert [prediction.token_str for prediction in predictions] == ["coffee", "hot chocolate"]
    assert predictions[0].score == pytest.approx(0.273, abs=0.002)
    assert predictions[1].token is None


def test_features_are_those_of_embed(server: LiveServer, vectors: FloatVector) -> None:
    client = InferenceClient(model=f"{server.url}/embed")
    assert_same(client.feature_extraction(TEXTS), vectors)
    assert_same(client.feature_extraction(TEXTS[1]), vectors[1:2])
    assert_same(client.feature_extraction(TEXTS, dimensions=13, normalize=True), scaled_head(vectors, 13))
    unscaled = client.feature_extraction(TEXTS, normalize=False, truncate=True, truncation_direction="left")
    assert_same(scaled_head(unscaled, unscaled.shape[1]), vectors)


def test_the_root_is_enough_for_features(server: LiveServer, vectors: FloatVector) -> None:
    assert_same(InferenceClient(model=server.url).feature_extraction(TEXTS), vectors)


def test_the_client_shows_what_was_wrong(server: LiveServer) -> None:
    with pytest.raises(HfHubHTTPError, match=r"no \[MASK\] in the text") as raised:
        InferenceClient(model=f"{server.url}/fill-mask").fill_mask("no mask")
    assert raised.value.response.status_code == 422


def test_asynchronous_calls(server: LiveServer, vectors: FloatVector) -> None:
    async def ask() -> None:
        async with AsyncInferenceClient() as client:
            best, *_ = await client.fill_mask(MASKED, model=f"{server.url}/fill-mask")
            assert best.token_str == "coffee"
            assert_same(await client.feature_extraction(TEXTS, model=f"{server.url}/embed"), vectors)

    asyncio.run(ask())
