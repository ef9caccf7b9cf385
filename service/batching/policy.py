"""Which waiting items go next: admission, fairness and the token budget.

Pure and synchronous: no event loop, and every time is passed in. The queue may be used from several threads.
"""

from __future__ import annotations

import enum
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

MAX_ANSWER_CHARACTERS = 16_000_000
"""Memory and time of answers grow with their length, which a short request may make any number of times its own.

Five predictions for the text of the longest body of the default `payload_limit` fit.
"""


class Costed(Protocol):
    """Anything that may wait: all that the policy looks at is what it costs."""

    @property
    def compute_tokens(self) -> int: ...

    @property
    def answer_characters(self) -> int: ...


ItemT = TypeVar("ItemT", bound=Costed)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much work is taken on.

    max_concurrent_requests: items (texts or pairs, not HTTP requests) accepted and not yet answered.
    max_queue_tokens: tokens that may wait for a pass.
    max_batch_tokens: tokens of the passes that run at one time; an item that costs more has a pass of its own.
    max_answer_characters: length of the answers of one request, and of one pass.
    """

    max_concurrent_requests: int
    max_queue_tokens: int
    max_batch_tokens: int
    max_answer_characters: int = MAX_ANSWER_CHARACTERS

    def __post_init__(self) -> None:
        for name in ("max_concurrent_requests", "max_queue_tokens", "max_batch_tokens", "max_answer_characters"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not allowed; it must be at least 1")


class Admission(enum.Enum):
    """What to do with an amount of work: one rule for a single text and for a list."""

    ACCEPTED = enum.auto()
    QUEUE_FULL = enum.auto()
    NEVER_FITS = enum.auto()


class Ticket(Generic[ItemT]):
    """One request's items that still wait, in their order. Equal by identity."""

    __slots__ = ("client", "deadline", "waiting")

    def __init__(self, items: Iterable[ItemT], *, client: str, deadline: float) -> None:
        self.client = client
        self.deadline = deadline
        self.waiting = deque(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Generic[ItemT]):
    """`items` go into one pass and cost `tokens` together; `late` ones passed their deadline and left the queue."""

    items: list[ItemT]
    tokens: int
    late: list[ItemT]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSize:
    """The threads that a pass may use, and the tokens that it may have."""

    threads: int
    max_tokens: int


class WaitingQueue(Generic[ItemT]):
    """Items in the order in which they get their turn.

    Clients take turns, one item each; within a client its requests take turns, one item each; within a request items
    keep their order. So an item that is its client's only one waits for at most one item of every other client,
    however many those have. Every step costs O(1) per item. Methods may be called from any thread;
    the counts may be read at any time, each right by itself.

    earliest_deadline: of all that wait, or of one that has left since; infinite without any.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._lock = threading.RLock()
        self._clients: OrderedDict[str, OrderedDict[Ticket[ItemT], None]] = OrderedDict()
        self.earliest_deadline = math.inf
        self.waiting_items = 0
        self.waiting_tokens = 0
        self.running_items = 0
        self.running_tokens = 0

    def admission(self, *, items: int, tokens: int) -> Admission:
        """May this much work come in now? All of it or nothing."""
        with self._lock:
            limits = self._limits
            if items > limits.max_concurrent_requests or tokens > limits.max_queue_tokens:
                return Admission.NEVER_FITS
            unanswered_items = self.waiting_items + self.running_items
            if (
                unanswered_items + items > limits.max_concurrent_requests
                or self.waiting_tokens + tokens > limits.max_queue_tokens
            ):
                return Admission.QUEUE_FULL
            return Admission.ACCEPTED

    def tokens_before_answer(self, *, client: str, items: int) -> int:
        """About how many tokens would be worked off until a request that came in now were answered, its own aside.

        What runs; what waits and has its turn before the request's last item, as long as nobody else comes; and what
        comes later and fills up the last pass.
        """
        with self._lock:
            if not self.waiting_items:
                return self.running_tokens
            requests = len(self._clients.get(client, ())) + 1
            clients = len(self._clients) + (client not in self._clients)
            turns = min(self.waiting_items, items * requests * clients)
            ahead = self.waiting_tokens * turns // self.waiting_items
            return self.running_tokens + ahead + min(ahead, self._limits.max_batch_tokens)

    def add(self, items: Iterable[ItemT], *, client: str, deadline: float | None) -> Ticket[ItemT]:
        """Queue one request's items; the caller has asked `admission` before. `deadline` is on the caller's clock."""
        with self._lock:
            ticket = Ticket(items, client=client, deadline=math.inf if deadline is None else deadline)
            self._clients.setdefault(client, OrderedDict())[ticket] = None
            self.earliest_deadline = min(self.earliest_deadline, ticket.deadline)
            self.waiting_items += len(ticket.waiting)
            self.waiting_tokens += sum(item.compute_tokens for item in ticket.waiting)
            return ticket

    def cancel(self, ticket: Ticket[ItemT]) -> list[ItemT]:
        """Take a request's waiting items out and return them; none if all are taken already."""
        with self._lock:
            if not ticket.waiting:
                return []
            requests = self._clients[ticket.client]
            del requests[ticket]
            if not requests:
                del self._clients[ticket.client]
            dropped = list(ticket.waiting)
            ticket.waiting.clear()
            self.waiting_items -= len(dropped)
            self.waiting_tokens -= sum(item.compute_tokens for item in dropped)
            return dropped

    def clear(self) -> list[ItemT]:
        """Take all waiting items out and return them."""
        with self._lock:
            tickets = [ticket for requests in self._clients.values() for ticket in requests]
            return [item for ticket in tickets for item in self.cancel(ticket)]

    def pass_size(self, *, threads: int, idle: int) -> PassSize:
        """How large a pass to start next.

        On a CPU passes of one thread each work more than passes that share all threads one after the other: nothing
        waits at a barrier, least of all for a core that is busy elsewhere. But they need as many items as there are
        threads; fewer, as a lone text, are done sooner by all threads together.

        Args:
            threads: of all passes together.
            idle: how many of them have nothing to do; at least 1.
        """
        with self._lock:
            most = self._limits.max_batch_tokens
            if idle == threads and self.waiting_items < threads:
                return PassSize(threads=threads, max_tokens=most)
            share = math.ceil(self.waiting_tokens / idle)
            return PassSize(threads=1, max_tokens=min(share, most // threads))

    def take_batch(self, *, now: float, max_tokens: int | None = None) -> Batch[ItemT]:
        """Drop the late, then take items in turn until the next one would not fit the budgets of a pass.

        The item that did not fit keeps its turn, so that a large one is never overtaken for ever by small ones.

        Args:
            max_tokens: the budget, where it is not `max_batch_tokens`.
        """
        with self._lock:
            late = self.drop_late(now=now)
            limits = self._limits
            max_tokens = limits.max_batch_tokens if max_tokens is None else max_tokens
            items: list[ItemT] = []
            tokens = 0
            characters = 0
            while self._clients:
                client, requests = next(iter(self._clients.items()))
                ticket = next(iter(requests))
                item = ticket.waiting[0]
                if items and (
                    tokens + item.compute_tokens > max_tokens
                    or characters + item.answer_characters > limits.max_answer_characters
                ):
                    break
                items.append(ticket.waiting.popleft())
                tokens += item.compute_tokens
                characters += item.answer_characters
                self._pass_turn(client, requests, ticket)
            self.waiting_items -= len(items)
            self.waiting_tokens -= tokens
            self.running_items += len(items)
            self.running_tokens += tokens
            return Batch(items=items, tokens=tokens, late=late)

    def drop_late(self, *, now: float) -> list[ItemT]:
        """Take the items out whose deadline has passed."""
        with self._lock:
            if now < self.earliest_deadline:
                return []
            # Looked through only when the earliest deadline has passed; with one timeout for all that is seldom.
            tickets = [ticket for requests in self._clients.values() for ticket in requests]
            late = [item for ticket in tickets if ticket.deadline <= now for item in self.cancel(ticket)]
            self.earliest_deadline = min((ticket.deadline for ticket in tickets if ticket.waiting), default=math.inf)
            return late

    def finished(self, batch: Batch[ItemT]) -> None:
        """The pass of a batch has ended: its items no longer count."""
        with self._lock:
            self.running_items -= len(batch.items)
            self.running_tokens -= batch.tokens

    def _pass_turn(self, client: str, requests: OrderedDict[Ticket[ItemT], None], ticket: Ticket[ItemT]) -> None:
        if ticket.waiting:
            requests.move_to_end(ticket)
        else:
            del requests[ticket]
        if requests:
            self._clients.move_to_end(client)
        else:
            del self._clients[client]


class DrainRate:
    """How fast passes work a long queue off, as an exponentially weighted mean over passes."""

    _WEIGHT_OF_PAST = 0.9
    _LONGEST_ESTIMATE_SECONDS = 40
    # With 0.75, one answer in ten came late at ten times the capacity: a client's clock runs from before its request is
    # read until its answer is written, and the event loop has little time for either then.
    _PLANNED_SHARE = 0.65

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, *, tokens: int, seconds: float, is_full: bool) -> None:
        """One pass of so many tokens took so long.

        What is not full tells little of a long queue, since much of its time may be the same for any size; unless it is
        quicker than all that is known: after a slow moment too little might be taken on to ever fill a pass again.
        """
        if not is_full and seconds >= self.seconds(tokens=tokens):
            return
        self._tokens = self._WEIGHT_OF_PAST * self._tokens + tokens
        self._seconds = self._WEIGHT_OF_PAST * self._seconds + seconds

    def seconds(self, *, tokens: int) -> float:
        """How long `tokens` will take; 0 as long as nothing was observed."""
        return tokens * self._seconds / self._tokens if self._tokens else 0.0

    def is_in_time(self, *, tokens: int, seconds_left: float) -> bool:
        """Will `tokens` be worked off by then, and is a third of the time left for slower passes than the last ones?"""
        seconds = self.seconds(tokens=tokens)
        return not seconds or seconds <= self._PLANNED_SHARE * seconds_left

    def retry_after_seconds(self, *, tokens: int, jitter: float) -> int:
        """When `tokens` will have been worked off, in whole seconds, 1 to 60.

        jitter: a random number in [0, 1); it adds up to half of the time again (1 s at least), so that the clients
            refused together do not come back together.
        """
        seconds = math.ceil(min(max(self.seconds(tokens=tokens), 1.0), self._LONGEST_ESTIMATE_SECONDS))
        return seconds + math.floor(jitter * (max(1, seconds // 2) + 1))
