"""The only place where the service's objects are made and joined."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from service import __version__
from service.api.api_keys import load_api_keys
from service.api.application import Application
from service.api.auth import ApiKeyGuard
from service.api.door import Door
from service.api.error_responses import ERROR_HEADERS
from service.api.guards import GuardMiddleware, Guards
from service.api.native import NativeRoutes
from service.api.openai import OpenAIRoutes
from service.api.operations import OperationsRoutes
from service.api.overload import OverloadGuard
from service.api.pages import PageRoutes
from service.api.request_id import REQUEST_ID_HEADER, RequestIdMiddleware, RequestRecords
from service.api.request_scope import RouteNames
from service.api.task_runner import COST_HEADERS, TaskRunner
from service.batching.batcher import Batcher
from service.batching.policy import QueueLimits
from service.lifecycle import ModelLifecycle, ServedEngine
from service.observability.access_log import log_request
from service.observability.metrics import Metrics
from service.settings import Settings, SettingsError, shown_flag

if TYPE_CHECKING:
    from service.observability.tracing import Tracing

# The default of max_queue_tokens: so many full passes may wait, but always room for one body of the largest size.
QUEUED_PASSES = 64
BYTES_PER_TOKEN = 4


def create_app(
    settings: Settings, engine: ServedEngine | None = None, *, worker: int = 0, metrics: Metrics | None = None
) -> FastAPI:
    """The application; its lifespan loads, warms up and starts the model, and drains it at the end.

    Args:
        settings: all of them.
        engine: served instead of the checkpoint that `settings` names.
        worker: number of this process among `settings.workers`.
        metrics: where it counts; None makes metrics of its own.

    Returns:
        The application, with its `ModelLifecycle` in `state.lifecycle` and the `Server`'s `refuse` in `state.refuse`.
    """
    metrics = metrics or Metrics()
    lifecycle = ModelLifecycle(
        load=partial(load_engine, settings, worker=worker) if engine is None else lambda: engine,
        make_batcher=partial(make_batcher, settings=settings, metrics=metrics),
        max_batch_tokens=settings.max_batch_tokens,
    )
    tracing = _tracing(settings)
    observers = [log_request] if settings.access_log else []
    if tracing is not None:
        observers.append(tracing.record)
    runner = TaskRunner(model=lifecycle, settings=settings, metrics=metrics)
    lifecycle.on_drain = runner.stop_reading
    pages = PageRoutes()
    native = NativeRoutes(runner, page=pages.playground)
    openai = OpenAIRoutes(runner, model=lifecycle, model_name=settings.model_name)
    operations = OperationsRoutes(model=lifecycle, settings=settings, metrics=metrics)
    model_routes = [*native.routes(), *openai.routes()]
    routes: list[BaseRoute] = [*model_routes, *operations.routes(), *pages.routes()]
    records = RequestRecords(RouteNames(routes), observers=observers)
    overload = OverloadGuard(model_routes, model=lifecycle, timeout_seconds=settings.request_timeout_seconds)
    api_keys = load_api_keys(settings)
    guards = Guards([overload] if api_keys is None else [ApiKeyGuard(api_keys), overload], metrics=metrics)
    app = Application(
        model_routes=model_routes,
        title="bert-service",
        version=__version__,
        routes=routes,
        middleware=_middleware(settings, records=records, guards=guards, metrics=metrics),
        lifespan=partial(_lifespan, lifecycle, settings, tracing),
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # ours are `service.observability`
    )
    app.state.lifecycle = lifecycle
    door = Door(records, guards=guards, overload=overload, trusted_proxies=settings.trusted_proxies)
    app.state.refuse = door.refusal
    return app


def load_engine(settings: Settings, *, worker: int) -> ServedEngine:
    """The engine that the settings name, for one of its workers.

    Raises:
        DeviceError, CheckpointError, TokenizerError, HubError: it cannot be had.
    """
    # Importing torch takes seconds, a download minutes; in the loading thread, the process answers probes meanwhile.
    from service.checkpoints.location import locate
    from service.engine.device import available_cpus
    from service.engine.engine import Engine

    location = locate(settings.model_id, revision=settings.revision, offline=settings.offline)
    return Engine.load(
        location.folder,
        device=settings.device,
        dtype=settings.dtype,
        model_id=settings.model_name,
        revision=location.revision,
        pooling=settings.pooling,
        threads=settings.cpu_threads or max(1, available_cpus() // settings.workers),
        worker=worker,
    )


def make_batcher(
    engine: ServedEngine,
    max_batch_tokens: int,
    on_failure: Callable[[BaseException], None],
    *,
    settings: Settings,
    metrics: Metrics,
) -> Batcher[Any]:
    """The batcher for an engine.

    Raises:
        SettingsError: the longest sequence of the model does not fit the token budget or the queue.
    """
    max_queue_tokens = settings.max_queue_tokens or max(
        QUEUED_PASSES * max_batch_tokens, settings.payload_limit // BYTES_PER_TOKEN
    )
    for name, limit in (("max_batch_tokens", max_batch_tokens), ("max_queue_tokens", max_queue_tokens)):
        if limit < engine.info.max_input_length:
            raise SettingsError(
                f"{shown_flag(name)} is {limit} and the model's max_input_length is "
                f"{engine.info.max_input_length}: it must hold that"
            )
    limits = QueueLimits(
        max_concurrent_requests=settings.max_concurrent_requests,
        max_queue_tokens=max_queue_tokens,
        max_batch_tokens=max_batch_tokens,
    )
    return Batcher(
        engine,
        limits=limits,
        metrics=metrics,
        pass_timeout_seconds=settings.pass_timeout_seconds,
        on_failure=on_failure,
    )


@contextlib.asynccontextmanager
async def _lifespan(
    lifecycle: ModelLifecycle, settings: Settings, tracing: Tracing | None, _: FastAPI
) -> AsyncIterator[None]:
    lifecycle.start()
    yield
    await lifecycle.drain(timeout_seconds=settings.drain_timeout_seconds)
    if tracing is not None:
        await tracing.close()


def _tracing(settings: Settings) -> Tracing | None:
    if settings.otlp_endpoint is None:
        return None
    # Its packages are an extra, and are neither needed nor loaded without a collector.
    from service.observability.tracing import Tracing

    return Tracing(endpoint=settings.otlp_endpoint, service_name=settings.otlp_service_name, version=__version__)


def _middleware(settings: Settings, *, records: RequestRecords, guards: Guards, metrics: Metrics) -> list[Middleware]:
    """Outermost first: a browser reads refusals too, and knows its request's id."""
    stack = []
    if settings.cors_allow_origin:
        stack.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_allow_origin,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=[REQUEST_ID_HEADER, *COST_HEADERS, *ERROR_HEADERS],
            )
        )
    if settings.trusted_proxies:
        stack.append(Middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.trusted_proxies)))
    stack.append(Middleware(RequestIdMiddleware, records=records, metrics=metrics))
    stack.append(Middleware(GuardMiddleware, guards=guards))
    return stack
