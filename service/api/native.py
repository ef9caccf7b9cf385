"""Our own routes and those of Text Embeddings Inference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.api.answer_bodies import fill_mask_content, next_sentence_content
from service.api.schemas import FillMaskRequest, NextSentenceRequest
from service.api.task_runner import TaskRunner
from service.api.tei_bodies import (
    decode_content,
    embed_all_content,
    embed_content,
    embed_sparse_content,
    similarity_content,
    tokenize_content,
)
from service.api.tei_schemas import (
    DecodeRequest,
    EmbedAllRequest,
    EmbedRequest,
    EmbedSparseRequest,
    SimilarityRequest,
    TokenizeRequest,
)


class NativeRoutes:
    """`/fill-mask`, `/next-sentence`, `/embed` and the other routes of TEI.

    Plain Starlette routes: what FastAPI's would do besides, `TaskRunner` does itself, and it costs 0.1 ms a request.
    """

    def __init__(self, runner: TaskRunner, *, page: Callable[[Request], Awaitable[Response]]) -> None:
        self._runner = runner
        self._page = page

    def routes(self) -> list[Route]:
        return [
            Route("/embed", self.embed, methods=["POST"]),
            Route("/embed_all", self.embed_all, methods=["POST"]),
            Route("/embed_sparse", self.embed_sparse, methods=["POST"]),
            Route("/similarity", self.similarity, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/decode", self.decode, methods=["POST"]),
            Route("/fill-mask", self.fill_mask, methods=["POST"]),
            Route("/next-sentence", self.next_sentence, methods=["POST"]),
            Route("/", self.root, methods=["GET", "POST"]),
        ]

    async def fill_mask(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=FillMaskRequest, content=fill_mask_content)

    async def next_sentence(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=NextSentenceRequest, content=next_sentence_content)

    async def embed(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=EmbedRequest, content=embed_content)

    async def embed_all(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=EmbedAllRequest, content=embed_all_content)

    async def embed_sparse(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=EmbedSparseRequest, content=embed_sparse_content)

    async def similarity(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=SimilarityRequest, content=similarity_content)

    async def tokenize(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=TokenizeRequest, content=tokenize_content)

    async def decode(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=DecodeRequest, content=decode_content)

    async def root(self, request: Request) -> Response:
        """TEI's alias of `/embed`, and the page for browsers."""
        return await self.embed(request) if request.method == "POST" else await self._page(request)
