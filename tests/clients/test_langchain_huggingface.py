from __future__ import annotations

import asyncio

from langchain_huggingface import HuggingFaceEndpointEmbeddings

from service.tasks import FloatVector
from tests.clients.conftest import TEXTS, assert_same
from tests.live_server import LiveServer


def test_embeddings_are_those_of_embed(server: LiveServer, vectors: FloatVector) -> None:
    embeddings = HuggingFaceEndpointEmbeddings(model=f"{server.url}/embed")
    assert_same(embeddings.embed_documents(TEXTS), vectors)
    assert_same([embeddings.embed_query(TEXTS[2])], vectors[2:])


def test_asynchronous_calls(server: LiveServer, vectors: FloatVector) -> None:
    embeddings = HuggingFaceEndpointEmbeddings(model=server.url, model_kwargs={"truncate": True})

    async def ask() -> None:
        async with embeddings.async_client:
            assert_same(await embeddings.aembed_documents(TEXTS), vectors)

    asyncio.run(ask())


def test_more_texts_than_fit_into_one_request_of_tei(server: LiveServer, vectors: FloatVector) -> None:
    """This class sends all documents at once, and TEI takes 32."""
    answers = HuggingFaceEndpointEmbeddings(model=f"{server.url}/embed").embed_documents(TEXTS * 67)
    assert len(answers) == 201
    assert_same(answers[-3:], vectors)
