"""How many requests may be in flight at once, and how that number adapts to a busy endpoint.

Additive increase, multiplicative decrease, as TCP does (RFC 5681): a 429 halves the limit under which the refused
request was sent. Afterwards the limit doubles with every round of answers until it is close to the value that was too
high, then rises by one a round, and tries that value again once in a while.

Requests sent before the limit was halved say nothing about the new limit, and neither do requests sent while those are
still being answered: their 429s do not halve it again. One limit holds for all processes of a run, and each process has
a fixed part of it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pytest_spiral.store import EndpointPace, RunStore

# An answer says something about a higher limit only if most of the present one was in use when it came.
_SATURATED = 0.8
# Fast growth ends at this part of the value that was too high.
_CLOSE = 0.9
# Rounds of answers before a value that was too high is tried again: often enough to notice that an endpoint has room
# again, rarely enough that its 429s stay a small part of all answers.
_PATIENCE = 16
# The assumed length of a round until the first answer has come, in seconds.
_ROUND_SECONDS = 1.0
# The weight of the newest answer in the mean length of a round (TCP uses 1/8 for a noisier quantity).
_NEWEST = 0.2
# How often to look up a limit that other processes may have changed, in seconds. A look-up takes about 10 microseconds.
_LOOK_UP_SECONDS = 0.05


def starting_pace(maximum: int) -> EndpointPace:
    """The limit that a session begins with."""
    return EndpointPace(maximum, maximum, at=time.time())


@dataclass(slots=True)
class RequestSlot:
    """The right to have one request in flight: waited for on entry, given back on exit."""

    _limiter: Limiter
    _priority: int
    _pace: EndpointPace = field(init=False)
    _sent: float = field(init=False)

    async def __aenter__(self) -> RequestSlot:
        limiter = self._limiter
        await limiter._acquire(self._priority)
        self._pace, self._sent = limiter._pace, limiter.clock()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._limiter._release()

    def throttled(self) -> None:
        """The endpoint answered 429."""
        self._limiter._throttled(self._pace, self._sent)

    def succeeded(self) -> None:
        """The endpoint answered."""
        self._limiter._succeeded(self._pace.epoch, self._sent)


@dataclass(slots=True)
class Limiter:
    """At most `maximum` requests in flight over `of` processes, of which this is number `rank`.

    Belongs to one event loop.

    Attributes:
        book: Where the processes of a run agree on the limit of an endpoint, None for a limit that nobody shares.
        in_flight: Requests of this process that are in flight now.

    Raises:
        ValueError: `maximum` does not leave every process at least one request.
    """

    maximum: int
    endpoint: str = ""
    rank: int = 0
    of: int = 1
    book: RunStore | None = None
    clock: Callable[[], float] = time.monotonic
    in_flight: int = field(init=False, default=0)
    _pace: EndpointPace = field(init=False)
    _looked_up: float = field(init=False)
    _halved: float = field(init=False, default=-math.inf)
    _round: float | None = field(init=False, default=None)
    _answers: int = field(init=False, default=0)
    _order: itertools.count[int] = field(init=False, default_factory=itertools.count)
    _waiting: list[tuple[int, int, asyncio.Future[None]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.of <= self.maximum:
            raise ValueError(f"need 0 <= rank < of <= maximum, got {self.rank}, {self.of} and {self.maximum}")
        self._looked_up = self.clock()
        start = starting_pace(self.maximum)
        self._pace = start if self.book is None else self.book.set_pace(self.endpoint, None, start)

    @property
    def limit(self) -> int:
        """Requests that this process may have in flight. The numbers of all processes add up to the common limit."""
        # Never less for a higher limit: processes that have not heard of a new limit yet do not exceed the highest.
        return self._most // self.of + (self.rank < self._most % self.of)

    @property
    def _most(self) -> int:
        return max(self.of, min(self._pace.most, self.maximum))

    def slot(self, priority: int = 0) -> RequestSlot:
        """An asynchronous context manager that waits for a slot, lowest `priority` first, and holds it."""
        return RequestSlot(self, priority)

    def _release(self) -> None:
        self.in_flight -= 1
        try:
            self._look_up()
        finally:
            # Whoever waits goes on, even where the limit could not be looked up.
            self._admit()

    def _look_up(self) -> None:
        """Follow what other processes have made of the limit."""
        now = self.clock()
        if self.book is not None and self.of > 1 and now - self._looked_up >= _LOOK_UP_SECONDS:
            self._looked_up = now
            self._follow(self.book.pace(self.endpoint) or self._pace)

    def _follow(self, pace: EndpointPace) -> None:
        if pace.epoch > self._pace.epoch:
            self._halved = self.clock()
        self._pace = pace

    async def _acquire(self, priority: int) -> None:
        if self.in_flight < self.limit and not self._waiting:
            self.in_flight += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was given to this waiter in the iteration of the loop in which it was cancelled.
                self.in_flight -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.in_flight < self.limit:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)

    def _throttled(self, pace: EndpointPace, sent: float) -> None:
        self._answers = 0
        most = min(pace.most, self.maximum)
        drained = self._halved + (_ROUND_SECONDS if self._round is None else self._round)
        if pace.epoch == self._pace.epoch and sent >= drained and self._most > self.of:
            self._change(EndpointPace(max(self.of, most // 2), most, "429", pace.epoch + 1))

    def _succeeded(self, epoch: int, sent: float) -> None:
        took = self.clock() - sent
        self._round = took if self._round is None else self._round + _NEWEST * (took - self._round)
        if epoch != self._pace.epoch or self._most >= self.maximum:
            return
        if self._waiting or self.in_flight >= _SATURATED * self.limit:
            self._answers += 1
        if self._answers >= self._needed():
            self._answers = 0
            self._change(EndpointPace(self._most + 1, self._pace.ceiling, "growth", epoch))
            self._admit()

    def _needed(self) -> int:
        """Answers of this process for one step up. All processes count, so together they take a step a round."""
        most, ceiling = self._most, self._pace.ceiling
        if most < _CLOSE * ceiling:
            return 1
        return most if most < ceiling - 1 else _PATIENCE * most

    def _change(self, new: EndpointPace) -> None:
        new = replace(new, at=time.time())
        self._follow(new if self.book is None else self.book.set_pace(self.endpoint, self._pace, new))
