"""Our own routes and those of Text Embeddings Inference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.api.answer_bodies import embed_content, fill_mask_content, next_sentence_content
from service.api.schemas import EmbedRequest, FillMaskRequest, NextSentenceRequest
from service.api.task_runner import TaskRunner


class NativeRoutes:
    """`/fill-mask`, `/next-sentence` and `/embed`.

    Plain Starlette routes: what FastAPI's would do besides, `TaskRunner` does itself, and it costs 0.1 ms a request.
    """

    def __init__(self, runner: TaskRunner, *, page: Callable[[Request], Awaitable[Response]]) -> None:
        self._runner = runner
        self._page = page

    def routes(self) -> list[Route]:
        return [
            Route("/embed", self.embed, methods=["POST"]),
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

    async def root(self, request: Request) -> Response:
        """TEI's alias of `/embed`, and the page for browsers."""
        return await self.embed(request) if request.method == "POST" else await self._page(request)
