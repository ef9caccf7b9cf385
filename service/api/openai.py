"""The routes of OpenAI's embeddings API, in its shapes, so that its SDK works."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.api.answer_bodies import JsonObject
from service.api.error_responses import json_response
from service.api.openai_errors import openai_error_body
from service.api.openai_schemas import EmbeddingsRequest
from service.api.task_runner import ModelServer, TaskRunner
from service.api.tei_bodies import embed_content
from service.batching.submission import Entry
from service.tasks import Answer


class OpenAIRoutes:
    """`/v1/embeddings` and `/v1/models`.

    Args:
        runner: has the embeddings made.
        model: asked whether it is ready.
        model_name: what the one model that is served is called.
    """

    def __init__(self, runner: TaskRunner, *, model: ModelServer, model_name: str) -> None:
        self._runner = runner
        self._model = model
        self._description = {
            "id": model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "bert-service",
        }

    def routes(self) -> list[Route]:
        return [
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/models", self.models, methods=["GET"]),
            # A name may hold slashes, and the SDK does not escape them.
            Route("/v1/models/{model_id:path}", self.retrieve_model, methods=["GET"]),
        ]

    async def embeddings(self, request: Request) -> Response:
        return await self._runner.answer(request, schema=EmbeddingsRequest, content=self._embeddings_content)

    async def models(self, _: Request) -> Response:
        self._model.check_ready()  # some clients ask for the models to see whether a server can be used
        return json_response({"object": "list", "data": [self._description]})

    async def retrieve_model(self, request: Request) -> Response:
        self._model.check_ready()
        if request.path_params["model_id"] == self._description["id"]:
            return json_response(self._description)
        message = "no such model; GET /v1/models names the one that is served"
        body = openai_error_body(message, status=404, param="model", code="model_not_found")
        return json_response(body, status=404)

    def _embeddings_content(self, request: EmbeddingsRequest, answers: Sequence[Entry]) -> JsonObject:
        vectors = embed_content(request, answers)
        tokens = sum(answer.compute_tokens for answer in answers if isinstance(answer, Answer))
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)
            ],
            "model": self._description["id"],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
