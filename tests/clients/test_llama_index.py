from __future__ import annotations

import asyncio

from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference

from service.tasks import FloatVector
from tests.clients.conftest import MODEL_NAME, TEXTS, assert_same
from tests.live_server import LiveServer


def test_embeddings_are_those_of_embed(server: LiveServer, vectors: FloatVector) -> None:
    embeddings = TextEmbeddingsInference(model_name=MODEL_NAME, base_url=server.url, embed_batch_size=2)
    assert_same(embeddings.get_text_embedding_batch(TEXTS), vectors)
    assert_same([embeddings.get_query_embedding(TEXTS[2])], vectors[2:])
    assert_same(asyncio.run(embeddings.aget_text_embedding_batch(TEXTS)), vectors)
