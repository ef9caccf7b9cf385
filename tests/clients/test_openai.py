from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from service.errors import HeadMissing
from service.tasks import Embed, FloatVector, Task
from tests.clients.conftest import MODEL_NAME, TEXTS, assert_same, scaled_head
from tests.live_server import LiveServer
from tests.service.fake_engine import FakeEncoded, FakeEngine
from tests.service.serving import serving_on_port


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_embeddings_are_those_of_embed(client: OpenAI, vectors: FloatVector) -> None:
    by_default = client.embeddings.create(model="any", input=TEXTS)  # the SDK asks for base64 and decodes it
    as_numbers = client.embeddings.create(model="any", input=TEXTS, encoding_format="float", user="me")
    for answer in (by_default, as_numbers):
        assert [item.index for item in answer.data] == [0, 1, 2]
        assert_same([item.embedding for item in answer.data], vectors)
        assert (answer.object, answer.model, answer.data[0].object) == ("list", MODEL_NAME, "embedding")
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == 27
    [single] = client.embeddings.create(model="any", input=TEXTS[2]).data
    assert_same([single.embedding], vectors[2:])


def test_dimensions_are_kept_and_scaled(client: OpenAI, vectors: FloatVector) -> None:
    answer = client.embeddings.create(model="any", input=TEXTS, dimensions=13)
    assert_same([item.embedding for item in answer.data], scaled_head(vectors, 13))


def test_token_ids_of_this_model_are_embedded(client: OpenAI, vectors: FloatVector) -> None:
    ids = [101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102]
    [answer] = client.embeddings.create(model="any", input=[ids]).data
    assert_same([answer.embedding], vectors[:1])


def test_the_model_is_listed_and_found(client: OpenAI) -> None:
    [model] = client.models.list()
    assert model.id == MODEL_NAME
    assert client.models.retrieve(MODEL_NAME) == model


def test_asynchronous_calls(server: LiveServer, vectors: FloatVector) -> None:
    async def ask() -> None:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            answer = await client.embeddings.create(model="any", input=TEXTS)
            assert_same([item.embedding for item in answer.data], vectors)
            assert (await client.models.retrieve(MODEL_NAME)).id == MODEL_NAME
            with pytest.raises(openai.BadRequestError, match="dimensions: must be from 1 to 384"):
                await client.embeddings.create(model="any", input="a", dimensions=385)

    asyncio.run(ask())


def test_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]: the text is empty") as raised:
        client.embeddings.create(model="any", input=["a", ""])
    assert (raised.value.type, raised.value.param, raised.value.code) == ("invalid_request_error", "input[1]", None)


def test_a_model_or_route_that_is_not_there(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="GET /v1/models") as raised:
        client.models.retrieve("gpt-5")
    assert raised.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="no such route"):
        client.completions.create(model="any", prompt="a")


def test_a_wrong_key() -> None:
    with serving_on_port(FakeEngine(), api_key="sesame") as url:
        with OpenAI(base_url=f"{url}/v1", api_key="sesame") as client:
            assert len(client.models.list().data) == 1
        with (
            OpenAI(base_url=f"{url}/v1", api_key="other") as client,
            pytest.raises(openai.AuthenticationError, match="Authorization: Bearer") as raised,
        ):
            client.embeddings.create(model="any", input="a")
    assert (raised.value.type, raised.value.code) == ("authentication_error", "invalid_api_key")


def test_a_full_queue_is_told_and_waited_for() -> None:
    engine = FakeEngine()
    engine.gate.clear()
    with (
        serving_on_port(engine, max_concurrent_requests=1, max_client_batch_size=1) as url,
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        first = threading.Thread(target=httpx.post, args=[f"{url}/embed"], kwargs={"json": {"inputs": "a"}})
        first.start()
        assert engine.entered.wait(10)
        with pytest.raises(openai.RateLimitError, match="the queue is full") as raised:
            client.embeddings.create(model="any", input="a")
        assert (raised.value.type, raised.value.code) == ("rate_limit_error", "rate_limit_exceeded")
        assert 1 <= int(raised.value.response.headers["retry-after"]) <= 60
        engine.gate.set()
        first.join()
        assert len(client.embeddings.create(model="any", input="a").data) == 1


class Failing(FakeEngine):
    """Counts what it is asked, and needs a head that it lacks for one text."""

    attempts = 0

    def encode(self, task: Task) -> FakeEncoded:
        self.attempts += 1
        if isinstance(task, Embed) and task.text == "pooled":
            raise HeadMissing("this checkpoint holds no pooler")
        return super().encode(task)


@pytest.mark.parametrize(("text", "status", "attempts"), [("pooled", 501, 1), ("boom", 500, 2)])
def test_a_missing_head_is_not_asked_for_again(text: str, status: int, attempts: int) -> None:
    engine = Failing()
    with (
        serving_on_port(engine) as url,
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=1) as client,
        pytest.raises(openai.InternalServerError) as raised,
    ):
        client.embeddings.create(model="any", input=text)
    assert (raised.value.status_code, raised.value.type) == (status, "server_error")
    assert engine.attempts == attempts
