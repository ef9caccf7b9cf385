"""Clients of every kind, good and bad, and what each may expect."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.server import UNFINISHED_REQUEST_SECONDS, vector_of
from tests.chaos.wire import Answer, Wire, connected, embed_request, head

PAYLOAD_LIMIT = 60_000
LARGEST_LIST = 200
REQUEST_TIMEOUT_SECONDS = 2
PATIENCE_SECONDS = 20
"""How long an answer may take in all this; only a failing run waits so long."""

# Statuses: 429 and 504 for want of time, 503 at the end.
GOOD = (200, 429, 504)

MALFORMED = (
    (b"{", 422),
    (b"null", 422),
    (b"", 422),
    (b'{"inputs": NaN}', 422),
    (b'{"inputs": 7}', 422),
    (b'{"inputs": []}', 400),
    (b'{"inputs": ""}', 400),
    (b'{"inputs": "\\ud800"}', 422),
    (b"[" * 5_000, 422),
    (b'{"inputs": "' + b"\xff" * 99 + b'"}', 422),
)
NOT_HTTP = (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"\r\n" * 9 + b"?" * 999)


@dataclass
class Chaos:
    """A run: where the service is, what it was asked, and what was wrong with that.

    counts: answers by client and status.
    faults: what must not be.
    live_seconds: how long each `/health/live` took.
    """

    port: int
    random: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    live_seconds: list[float] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def text(self) -> str:
        """A text that nobody else sends, of 1 to 9 words."""
        words = self.random.randint(1, 9)
        return " ".join(f"{self.random.getrandbits(40):x}" for _ in range(words))

    def texts(self, *, most: int) -> list[str]:
        return [self.text() for _ in range(self.random.randint(1, most))]

    async def pause(self, most_seconds: float) -> None:
        await asyncio.sleep(self.random.random() * most_seconds)

    def check(self, client: str, answer: Answer, inputs: str | Sequence[str], *, allowed: Sequence[int] = GOOD) -> None:
        """Count an answer, and tell if it is not the right one."""
        self.counts[f"{client}: {answer.status}"] += 1
        if answer.status not in allowed:
            self.faults[f"{client}: status {answer.status}, {answer.body[:200]!r}"] += 1
        elif answer.status == 200:
            texts = [inputs] if isinstance(inputs, str) else inputs
            if json.loads(answer.body) != [vector_of(text) for text in texts]:
                self.faults[f"{client}: not the answer to what was asked"] += 1
        elif answer.status == 429 and not 1 <= int(answer.headers["retry-after"]) <= 60:
            self.faults[f"{client}: Retry-After {answer.headers['retry-after']}"] += 1

    async def repeat(self, client: Callable[[Chaos], Awaitable[None]]) -> None:
        """Let a client do what it does again and again. It must come to an end each time, and lose no connection."""
        name = client.__name__
        while not self.stopping.is_set():
            try:
                await asyncio.wait_for(client(self), 2 * PATIENCE_SECONDS)
            except (OSError, TimeoutError) as error:
                self.faults[f"{name}: {type(error).__name__}: {error}"] += 1
                await asyncio.sleep(0.1)


async def asks(chaos: Chaos) -> None:
    """Texts and lists, one after the other over one connection."""
    async with connected(chaos.port) as wire:
        for _ in range(chaos.random.randint(1, 20)):
            inputs = chaos.text() if chaos.random.random() < 0.7 else chaos.texts(most=20)
            await wire.send(embed_request(inputs))
            chaos.check("asks", await wire.answer(), inputs)
            await chaos.pause(0.02)


async def overloads(chaos: Chaos) -> None:
    """Many at once, and then nothing for a while."""

    async def ask() -> None:
        inputs = chaos.texts(most=30)
        async with connected(chaos.port) as wire:
            await wire.send(embed_request(inputs))
            chaos.check("overloads", await wire.answer(), inputs)

    await asyncio.gather(*(ask() for _ in range(50)))
    await chaos.pause(1.0)


async def sends_ahead(chaos: Chaos) -> None:
    """Several requests at once over one connection; the answers come in their order."""
    async with connected(chaos.port) as wire:
        rows = [chaos.texts(most=3) for _ in range(chaos.random.randint(2, 9))]
        await wire.send(b"".join(map(embed_request, rows)))
        for row in rows:
            chaos.check("sends_ahead", await wire.answer(), row)
    await chaos.pause(0.1)


async def is_in_a_hurry(chaos: Chaos) -> None:
    """Deadlines that are sometimes met."""
    async with connected(chaos.port) as wire:
        for _ in range(5):
            inputs = chaos.texts(most=9)
            milliseconds = str(chaos.random.randint(1, 60))
            await wire.send(embed_request(inputs, x_request_timeout_ms=milliseconds))
            chaos.check("is_in_a_hurry", await wire.answer(), inputs)
            await chaos.pause(0.05)


async def leaves(chaos: Chaos) -> None:
    """Gone before the end of the request, in the queue, during the pass, or while the answer comes."""
    async with connected(chaos.port) as wire:
        request = embed_request(chaos.texts(most=LARGEST_LIST))
        if chaos.random.random() < 0.3:
            request = request[: chaos.random.randrange(len(request))]
        await wire.send(request)
        await chaos.pause(0.08)
        if chaos.random.random() < 0.5:
            wire.reset()


async def reads_slowly(chaos: Chaos) -> None:
    """In the end it has the whole answer, and the right one."""
    async with connected(chaos.port, narrow=True) as wire:
        inputs = chaos.texts(most=LARGEST_LIST)
        await wire.send(embed_request(inputs, connection="close"))
        content = await wire.read_slowly(pause_seconds=0.02)
        top, _, body = content.partition(b"\r\n\r\n")
        status = int(top.split()[1])
        chaos.check("reads_slowly", Answer(status=status, headers={"retry-after": "1"}, body=body), inputs)


async def never_reads(chaos: Chaos) -> None:
    """Asks on and on, and reads nothing."""
    request = embed_request([chaos.text() for _ in range(100)])
    async with connected(chaos.port, narrow=True) as wire:
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(5):
                while True:
                    await wire.send(request)
                    await chaos.pause(0.05)
        wire.reset()


async def sends_slowly(chaos: Chaos) -> None:
    """Bit by bit, but it comes to an end in time."""
    async with connected(chaos.port) as wire:
        inputs = chaos.texts(most=9)
        request = embed_request(inputs)
        while request:
            size = chaos.random.randint(1, 40)
            await wire.send(request[:size])
            request = request[size:]
            await asyncio.sleep(0.01)
        chaos.check("sends_slowly", await wire.answer(), inputs)


async def never_ends(chaos: Chaos) -> None:
    """Drips a head, or a body, for ever: that of a request that is waited for, or of one that was refused."""
    begin, part = chaos.random.choice(
        [(b"GET ", b"/"), (b"GET / HTTP/1.1\r\n", b"a: b\r\n"), (head(9_999), b" "), (head(99_999_999), b" " * 999)]
    )
    longest_seconds = REQUEST_TIMEOUT_SECONDS + UNFINISHED_REQUEST_SECONDS + 1
    async with connected(chaos.port) as wire:

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                await wire.send(begin)
                while True:
                    await wire.send(part)
                    await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        closed = await wire.is_closed(within_seconds=longest_seconds)
        dripping.cancel()
        chaos.counts[f"never_ends: {'closed' if closed else 'still open'}"] += 1
        if not closed:
            chaos.faults[f"never_ends: open after {longest_seconds} s: {begin + part!r}"] += 1


async def sends_nonsense(chaos: Chaos) -> None:
    """Bodies with faults, between which the connection stays of use; and what is not HTTP."""
    async with connected(chaos.port) as wire:
        for _ in range(5):
            body, status = chaos.random.choice(MALFORMED)
            await wire.send(head(len(body)) + body)
            chaos.check("sends_nonsense", await wire.answer(), [], allowed=(status, 429))
        text = chaos.text()
        await wire.send(embed_request(text))
        chaos.check("sends_nonsense", await wire.answer(), text)
        await wire.send(chaos.random.choice(NOT_HTTP))
        if not await wire.is_closed(within_seconds=UNFINISHED_REQUEST_SECONDS + 1):
            chaos.faults["sends_nonsense: what is not HTTP was borne"] += 1


async def sends_too_much(chaos: Chaos) -> None:
    """A body over the limit, announced or in chunks; the rest of it comes, and the next request is served."""
    async with connected(chaos.port) as wire:
        size = PAYLOAD_LIMIT + chaos.random.randint(1, 50_000)
        if chaos.random.random() < 0.5:
            await wire.send(head(size) + b" " * size)
        else:
            top = head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
            await wire.send(top + b"%x\r\n%s\r\n" % (size, b" " * size) + b"0\r\n\r\n")
        chaos.check("sends_too_much", await wire.answer(), [], allowed=(413, 429))
        text = chaos.text()
        await wire.send(embed_request(text))
        chaos.check("sends_too_much", await wire.answer(), text)
    await chaos.pause(0.1)


async def raises(chaos: Chaos) -> None:
    """Texts for which the model fails."""
    async with connected(chaos.port) as wire:
        texts = [*chaos.texts(most=9), "boom", *chaos.texts(most=9)]
        await wire.send(embed_request(texts))
        chaos.check("raises", await wire.answer(), texts, allowed=(500, 429, 504))
    await chaos.pause(0.1)


async def looks_after(chaos: Chaos) -> None:
    """Whether the process lives, and how quickly it says so."""
    begun = time.perf_counter()
    async with connected(chaos.port) as wire:
        await wire.send(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        status = (await wire.answer()).status
    chaos.live_seconds.append(time.perf_counter() - begun)
    if status != 200:
        chaos.faults[f"looks_after: status {status}"] += 1
    await asyncio.sleep(0.1)


CLIENTS: tuple[tuple[Callable[[Chaos], Awaitable[None]], int], ...] = (
    (asks, 6),
    (overloads, 1),
    (sends_ahead, 2),
    (is_in_a_hurry, 2),
    (leaves, 4),
    (reads_slowly, 2),
    (never_reads, 2),
    (sends_slowly, 4),
    (never_ends, 8),
    (sends_nonsense, 2),
    (sends_too_much, 2),
    (raises, 2),
    (looks_after, 1),
)
"""So many of each at one time."""


async def asks_until_the_end(chaos: Chaos, *, signalled: Callable[[], float]) -> None:
    """One request a connection, while the service shuts down.

    What was sent before the listener closed is answered, with 503 at worst; later there is no connection.

    Args:
        signalled: when the listener may close, or infinity.
    """
    while True:
        sent = time.monotonic()
        inputs = chaos.texts(most=9)
        try:
            async with connected(chaos.port) as wire:
                await wire.send(embed_request(inputs))
                chaos.check("asks_until_the_end", await wire.answer(), inputs, allowed=(*GOOD, 503))
        except ConnectionError as error:
            if sent < signalled():
                chaos.faults[f"asks_until_the_end: {type(error).__name__}: {error}"] += 1
            return


async def whole_queue_is_free(chaos: Chaos, *, items: int) -> bool:
    """Whether nothing waits and nothing runs: only then a list of the most items at all is accepted."""
    inputs = [chaos.text() for _ in range(items)]
    async with connected(chaos.port) as wire:
        await wire.send(embed_request(inputs))
        answer = await wire.answer()
        chaos.check("whole_queue_is_free", answer, inputs)
        return answer.status == 200


async def metrics(wire: Wire) -> dict[str, str]:
    """Names and values."""
    await wire.send(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n")
    lines = (await wire.answer()).body.decode().splitlines()
    return {name: value for name, _, value in (line.rpartition(" ") for line in lines)}
