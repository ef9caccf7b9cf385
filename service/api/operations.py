"""What operators and their tools ask: health, facts, metrics, the OpenAPI document."""

from __future__ import annotations

import platform
from importlib.metadata import version

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from service import __version__
from service.api.error_responses import json_response
from service.api.openapi import openapi_document
from service.api.task_runner import ModelServer
from service.batching.encoding import TOKENIZATION_THREADS
from service.observability.metrics import Metrics
from service.settings import Settings


class OperationsRoutes:
    """`/health`, `/info`, `/metrics` and `/openapi.json`."""

    def __init__(self, *, model: ModelServer, settings: Settings, metrics: Metrics) -> None:
        self._model = model
        self._settings = settings
        self._metrics = metrics
        document = openapi_document(
            version=__version__, root_path=settings.root_path, with_api_key=settings.asks_for_key
        )
        self._openapi_bytes = orjson.dumps(document)
        self._versions = {
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "tokenizers", "fastapi")},
        }

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/health", self.ready, methods=["GET"]),
            Route("/health/ready", self.ready, methods=["GET"]),
            Route("/health/live", self.live, methods=["GET"]),
            Route("/info", self.info, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    async def live(self, _: Request) -> Response:
        return json_response({"status": "alive"})

    async def ready(self, _: Request) -> Response:
        self._model.check_ready()
        return json_response({"status": "ready"})

    async def info(self, _: Request) -> Response:
        """TEI's fields in TEI's order, then ours."""
        model, settings = self._model.info, self._settings
        content = {
            "model_id": model.model_id,
            "model_sha": model.revision,
            "model_dtype": model.dtype,
            "model_type": {"embedding": {"pooling": model.pooling}},
            "max_concurrent_requests": settings.max_concurrent_requests,
            "max_input_length": model.max_input_length,
            "max_batch_tokens": self._model.max_batch_tokens,
            "max_batch_requests": None,
            "max_client_batch_size": settings.max_client_batch_size,
            "auto_truncate": settings.auto_truncate,
            "tokenization_workers": TOKENIZATION_THREADS,
            "version": __version__,
            "sha": None,
            "docker_label": None,
            "capabilities": model.capabilities,
            "heads_missing": model.heads_missing,
            "device": model.device,
            "dtype": model.dtype,
            "pooling": model.pooling,
            "revision": model.revision,
            "max_embed_length": model.max_embed_length,
            "max_top_k": settings.max_top_k,
            "hidden_size": model.hidden_size,
            "vocab_size": model.vocab_size,
            "parameters": model.parameters,
            "mask_token": model.mask_token,
            "attention": model.attention,
            "least_embedding_cosine": model.least_embedding_cosine,
            "least_top1_agreement": model.least_top1_agreement,
            "versions": self._versions,
        }
        return json_response(content)

    async def metrics(self, _: Request) -> Response:
        content, content_type = self._metrics.render()
        return Response(content, headers={"content-type": content_type})

    async def openapi(self, _: Request) -> Response:
        return Response(self._openapi_bytes, media_type="application/json")
