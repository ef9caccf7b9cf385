"""Load on a server: closed loop (each connection sends when it has its answer) or open loop (a given rate)."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from random import Random

from service.load_generator.http_client import Address, Answer, Connection, ConnectionFailure, request_bytes
from service.load_generator.measurements import Measurements, failure_of
from service.load_generator.requests import RequestBody, Requests

# A server that is gone refuses connections as fast as they are tried.
WAIT_AFTER_FAILURE_SECONDS = 0.1

NOT_SENT = "not sent (no connection was free)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much load, and for how long.

    rate: requests that arrive per second, at random times, whether or not earlier ones are answered; their latency
        counts from their arrival. None is a closed loop.
    warm_up_seconds: load before the measured time.
    """

    connections: int
    duration_seconds: float
    warm_up_seconds: float
    rate: float | None
    timeout_seconds: float


class LoadGenerator:
    """One run. What it has measured so far may be read at any time.

    Args:
        address: the server.
        requests: what is sent.
        plan: how much of it.
        api_key: sent as bearer token.
        seed: of the arrival times.
    """

    def __init__(self, address: Address, *, requests: Requests, plan: Plan, api_key: str | None, seed: int) -> None:
        self.measurements = Measurements()
        self._address = address
        self._requests = requests
        self._plan = plan
        self._api_key = api_key
        self._random = Random(seed)
        self._begin = self._end = 0.0

    @property
    def measured_seconds(self) -> float:
        """How much of the measured time has passed."""
        return max(0.0, min(time.perf_counter() - self._begin, self._plan.duration_seconds))

    async def run(self) -> None:
        """Until the time is over and every request that was sent is answered, or cancelled."""
        self._begin = time.perf_counter() + self._plan.warm_up_seconds
        self._end = self._begin + self._plan.duration_seconds
        connections = [Connection(self._address) for _ in range(self._plan.connections)]
        try:
            async with asyncio.TaskGroup() as group:
                if self._plan.rate is None:
                    for connection in connections:
                        group.create_task(self._send_one_after_the_other(connection))
                    return
                arrivals: asyncio.Queue[float] = asyncio.Queue()
                for connection in connections:
                    group.create_task(self._send_arrivals(connection, arrivals))
                group.create_task(self._arrive(arrivals, rate=self._plan.rate))
        finally:
            for connection in connections:
                connection.close()

    async def _send_one_after_the_other(self, connection: Connection) -> None:
        while (now := time.perf_counter()) < self._end:
            wait_seconds = await self._send(connection, since=now)
            if wait_seconds:
                await asyncio.sleep(min(wait_seconds, self._end - time.perf_counter()))

    async def _arrive(self, arrivals: asyncio.Queue[float], *, rate: float) -> None:
        arrival = time.perf_counter()
        while (arrival := arrival + self._random.expovariate(rate)) < self._end:
            await asyncio.sleep(arrival - time.perf_counter())
            arrivals.put_nowait(arrival)
        await asyncio.sleep(self._end - time.perf_counter())
        # What is still in the queue would be sent after the time is over.
        while not arrivals.empty():
            self._fail(NOT_SENT, since=arrivals.get_nowait())
        for _ in range(self._plan.connections):
            arrivals.put_nowait(self._end)

    async def _send_arrivals(self, connection: Connection, arrivals: asyncio.Queue[float]) -> None:
        while (arrival := await arrivals.get()) < self._end:
            await self._send(connection, since=arrival)

    async def _send(self, connection: Connection, *, since: float) -> float:
        """Send the next request and measure; returns how long to wait before another one."""
        body = self._requests.next()
        request = request_bytes("POST", self._address, body.route, json_bytes=body.json_bytes, api_key=self._api_key)
        try:
            answer = await connection.send(request, timeout_seconds=self._plan.timeout_seconds)
        except TimeoutError:
            self._fail(f"no answer within {self._plan.timeout_seconds:g} s", since=since)
            return 0.0
        except ConnectionFailure as failure:
            self._fail(str(failure), since=since)
            return WAIT_AFTER_FAILURE_SECONDS
        if answer.status != 200:
            self._fail(failure_of(answer), since=since)
            return _retry_after_seconds(answer)
        self._measure(answer, body, since=since)
        return 0.0

    def _measure(self, answer: Answer, body: RequestBody, *, since: float) -> None:
        now = time.perf_counter()
        if self._begin <= now < self._end:
            self.measurements.count(answer, texts=body.texts)
        if since >= self._begin:
            self.measurements.time(answer, seconds=now - since)

    def _fail(self, name: str, *, since: float) -> None:
        if since >= self._begin:
            self.measurements.failures[name] += 1


def _retry_after_seconds(answer: Answer) -> float:
    """How long the server asks to wait; a failure without such a word is not waited for."""
    value = answer.headers.get(b"retry-after", b"")
    return float(value) if value.isdigit() else 0.0
