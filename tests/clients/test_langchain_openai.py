from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
import tiktoken
from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr

from service.tasks import FloatVector
from tests.clients.conftest import TEXTS, assert_same, scaled_head
from tests.live_server import LiveServer


def embeddings_of(server: LiveServer, **options: Any) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        model="any", base_url=f"{server.url}/v1", api_key=SecretStr("none"), max_retries=0, **options
    )


def test_texts_are_embedded(server: LiveServer, vectors: FloatVector) -> None:
    embeddings = embeddings_of(server, check_embedding_ctx_length=False)
    assert_same(embeddings.embed_documents(TEXTS), vectors)
    assert_same([embeddings.embed_query(TEXTS[2])], vectors[2:])


def test_asynchronous_calls(server: LiveServer, vectors: FloatVector) -> None:
    async def ask() -> None:
        async with httpx.AsyncClient() as connections:
            embeddings = embeddings_of(server, check_embedding_ctx_length=False, http_async_client=connections)
            assert_same(await embeddings.aembed_documents(TEXTS), vectors)

    asyncio.run(ask())


def test_several_requests_and_dimensions(server: LiveServer, vectors: FloatVector) -> None:
    embeddings = embeddings_of(server, check_embedding_ctx_length=False, chunk_size=2, dimensions=13)
    assert_same(embeddings.embed_documents(TEXTS), scaled_head(vectors, 13))


@pytest.mark.parametrize("first_id", [0, 100_000])
def test_by_default_it_is_told_what_to_change(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, first_id: int
) -> None:
    """It sends token ids of OpenAI's vocabulary, for which one of single bytes stands here: that needs no download."""
    encoding = tiktoken.Encoding(
        "bytes",
        pat_str=r"\w+|\W",
        mergeable_ranks={bytes([byte]): first_id + byte for byte in range(256)},
        special_tokens={},
    )
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _: encoding)
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False") as raised:
        embeddings_of(server).embed_documents(TEXTS)
    assert raised.value.param == "input[0]"
