"""The one way from a request to its answer, shared by all routes that run tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from service.api.disconnect import CancelOnDisconnect
from service.api.json_pieces import dump, dump_in_pieces, json_answer
from service.api.offload import LARGE_CHARACTERS, Offload, characters_of
from service.api.request_body import BodyReader, check_content_type, parse_body
from service.api.request_scope import header, record_of
from service.api.schemas import TaskRequest
from service.batching.submission import Entry, Rounds
from service.errors import InvalidInput, ServiceError
from service.observability.metrics import Metrics, RequestMethod
from service.observability.request_record import RequestWork
from service.settings import Settings
from service.tasks import Answer, Decode, Embed, EmbedAll, EmbedSparse, ModelInfo, NextSentence, Task, Timing

TIMEOUT_HEADER = "x-request-timeout-ms"

COST_HEADERS = {
    "x-total-time": "The whole time, in ms.",
    "x-tokenization-time": "Time to tokenize, in ms.",
    "x-queue-time": "Wait for a pass, in ms.",
    "x-inference-time": "Time of the pass, in ms.",
    "x-compute-tokens": "Tokens that went through the model.",
    "x-compute-characters": "Characters of all texts.",
    "x-truncated": "Texts that were cut to the model's limit.",
}

# nginx's word for it: nobody is there to read the answer, but logs and metrics are.
CLIENT_CLOSED_REQUEST = 499

RequestT = TypeVar("RequestT", bound=TaskRequest)


class ModelServer(Protocol):
    """What the routes need of the model and its queue, from before it is loaded until it is gone."""

    @property
    def info(self) -> ModelInfo:
        """Raises Unhealthy while there is no model yet."""
        ...

    @property
    def max_batch_tokens(self) -> int:
        """The token budget of a pass; raises Unhealthy while there is no model yet."""
        ...

    def check_ready(self) -> None:
        """Raises Unhealthy if requests should go elsewhere."""
        ...

    def check_admission(self, *, client: str, deadline: float | None) -> None:
        """Cheap enough for every request. Raises Overloaded or Unhealthy if nothing could be taken on now."""
        ...

    async def submit_rounds(
        self, rounds: Rounds, *, client: str, deadline: float | None, all_or_nothing: bool
    ) -> list[Entry]:
        """What the rounds come to: one answer or error per task of the first. Raises what concerns all tasks.

        Args:
            client: whose turn it is.
            deadline: on `time.monotonic`'s clock.
            all_or_nothing: where one task is refused, the others need not be run.
        """
        ...


class TaskRunner:
    """Takes requests in, has their tasks run, and answers them."""

    def __init__(self, *, model: ModelServer, settings: Settings, metrics: Metrics) -> None:
        self._model = model
        self._settings = settings
        self._metrics = metrics
        self._bodies = BodyReader(limit_bytes=settings.payload_limit)
        self._offload = Offload()

    def stop_reading(self) -> None:
        """Answer 503 to requests whose body has not come whole, and to all that come from now on."""
        self._bodies.close()

    async def answer(
        self,
        request: Request,
        *,
        schema: type[RequestT],
        content: Callable[[RequestT, Sequence[Entry]], object],
    ) -> Response:
        """Read the body as `schema`, run its tasks, and answer with what `content` makes of them.

        Raises:
            ServiceError: what is wrong with the request as a whole, or with the first of its items that is.
        """
        try:
            return await self._answer(request, schema, content)
        except ServiceError as error:
            self._metrics.request_failed(error)
            raise
        except ClientDisconnect:
            return Response(status_code=CLIENT_CLOSED_REQUEST)

    async def _answer(
        self,
        request: Request,
        schema: type[RequestT],
        content: Callable[[RequestT, Sequence[Entry]], object],
    ) -> Response:
        started = time.monotonic()
        timeout_seconds = self._timeout_seconds(request)
        deadline = started + timeout_seconds
        check_content_type(request)
        record = record_of(request.scope)
        if timeout_seconds < self._settings.request_timeout_seconds:  # else `OverloadGuard` has asked
            self._model.check_admission(client=record.client, deadline=deadline)
        raw = await self._bodies.read(request, deadline=deadline)
        body, tasks = await self._offload.call(lambda: self._understood(raw, schema), characters=len(raw))
        method: RequestMethod = "batch" if body.list_place else "single"
        self._metrics.request_received(method)
        submitted = time.monotonic()
        with CancelOnDisconnect(request.receive):
            answers = await self._model.submit_rounds(
                body.rounds(tasks),
                client=record.client,
                deadline=deadline,
                all_or_nothing=not body.wants_details,
            )
        characters = characters_of(answers)
        write = dump if characters < LARGE_CHARACTERS else dump_in_pieces
        json_bytes = await self._offload.call(lambda: write(content(body, answers)), characters=characters)
        done = [answer for answer in answers if isinstance(answer, Answer)]
        timing = Timing.slowest(answer.timing for answer in done)
        if done:
            record.work = RequestWork(submitted=submitted, timing=timing, answers=done)
        total_seconds = time.monotonic() - started
        self._metrics.request_answered(method, timing=timing, total_seconds=total_seconds)
        headers = _cost_headers(tasks, done, timing=timing, total_seconds=total_seconds)
        return json_answer(json_bytes, headers=headers)

    def _understood(self, raw: bytes, schema: type[RequestT]) -> tuple[RequestT, Sequence[Task]]:
        body = parse_body(raw, schema)
        return body, body.tasks(self._settings)

    def _timeout_seconds(self, request: Request) -> float:
        longest = self._settings.request_timeout_seconds
        wanted = header(request.scope, TIMEOUT_HEADER.encode())
        if wanted is None:
            return longest
        wanted = wanted.strip(" \t")  # no part of a field's value, and left behind it by the parser
        if not (wanted.isdecimal() and wanted.isascii() and len(wanted) < 16 and int(wanted)):
            raise InvalidInput("must be a whole number of milliseconds from 1", field=TIMEOUT_HEADER)
        return min(longest, int(wanted) / 1000)


def _cost_headers(
    tasks: Sequence[Task], answers: Sequence[Answer], *, timing: Timing, total_seconds: float
) -> dict[str, str]:
    values = (
        _milliseconds(total_seconds),
        _milliseconds(timing.tokenization),
        _milliseconds(timing.queue),
        _milliseconds(timing.inference),
        str(sum(answer.compute_tokens for answer in answers)),
        str(sum(_characters(task) for task in tasks)),
        str(sum(answer.result.truncated for answer in answers)),
    )
    return dict(zip(COST_HEADERS, values, strict=True))


def _characters(task: Task) -> int:
    match task:
        case NextSentence():
            return len(task.text) + len(task.text_pair)
        case Embed(text=tuple()) | EmbedAll(text=tuple()) | EmbedSparse(text=tuple()) | Decode():
            return 0
        case _:
            return len(task.text)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3f}"
