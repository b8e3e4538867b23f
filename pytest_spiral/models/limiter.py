"""How many requests may be in flight at once, and how that number gives way to a busy endpoint.

Additive increase, multiplicative decrease, as in TCP: a 429 halves the limit that the refused request was sent under.
The limit doubles every round of answers until close to there, rises by one a round to just below, and tries that very
number again once in a while. Requests sent before a halving say nothing about the new limit, and neither do those sent
while the ones before it are still being answered, in whatever process: their 429s do not halve it again. One limit
holds for all processes of a run; each has its share.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

__all__ = ["Limiter", "Pace", "PaceBook", "PaceInMemory", "Slot", "start"]

# The share of the limit that must be in use for an answer to say anything about a higher limit.
_SATURATED = 0.8
# Where, below the limit that was too high, fast growth ends.
_CLOSE = 0.9
# Rounds of answers before a number is tried again that was too high before.
_PATIENCE = 16
# How long an answer takes, as long as none has come; the weight of the newest in the mean.
_ROUND_SECONDS = 1.0
_NEWEST = 0.2
# How often the limit is looked up that other processes may have changed.
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Pace:
    """One value of an endpoint's limit. most: requests in flight, over all processes. epoch: halvings so far.

    ceiling: the last value that proved too high, at first the starting one. at: seconds since 1970.
    """

    most: int
    ceiling: int
    reason: Literal["start", "429", "growth"] = "start"
    epoch: int = 0
    at: float = 0.0


def start(maximum: int) -> Pace:
    """The limit a session begins with."""
    return Pace(maximum, maximum, at=time.time())


class PaceBook(Protocol):
    """Where the processes of a run agree on the limits of their endpoints."""

    def pace(self, endpoint: str) -> Pace | None:
        """The limit that holds now, None before the first."""
        ...

    def set_pace(self, endpoint: str, seen: Pace | None, new: Pace) -> Pace:
        """Let `new` follow `seen`; where another process was faster, its value holds. Returns what holds."""
        ...


@dataclass
class PaceInMemory:
    """A book for one process. history: every value of every endpoint."""

    history: dict[str, list[Pace]] = field(default_factory=dict)

    def pace(self, endpoint: str) -> Pace | None:
        return self.history[endpoint][-1] if endpoint in self.history else None

    def set_pace(self, endpoint: str, seen: Pace | None, new: Pace) -> Pace:
        held = self.pace(endpoint)
        if held != seen and held is not None:
            return held
        self.history.setdefault(endpoint, []).append(new)
        return new


@dataclass(slots=True)
class Slot:
    """The right to have one request in flight: waited for on entry, given back on exit."""

    _limiter: Limiter
    _priority: int
    _pace: Pace = field(init=False)
    _sent: float = field(init=False)

    async def __aenter__(self) -> Slot:
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
    """At most `maximum` requests in flight over `of` processes, of which this is number `rank`. One event loop's.

    limit: how many this process may have in flight now. in_flight, peak: how many are, and were at most.
    Raises `ValueError` unless every process can have at least one.
    """

    maximum: int
    endpoint: str = ""
    rank: int = 0
    of: int = 1
    book: PaceBook = field(default_factory=PaceInMemory)
    clock: Callable[[], float] = time.monotonic
    in_flight: int = field(init=False, default=0)
    peak: int = field(init=False, default=0)
    _pace: Pace = field(init=False)
    _looked: float = field(init=False)
    _halved: float = field(init=False, default=-math.inf)
    _round: float | None = field(init=False, default=None)
    _answers: int = field(init=False, default=0)
    _order: itertools.count[int] = field(init=False, default_factory=itertools.count)
    _waiting: list[tuple[int, int, asyncio.Future[None]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.of <= self.maximum:
            raise ValueError(f"need 0 <= rank < of <= maximum, got {self.rank}, {self.of} and {self.maximum}")
        self._looked = self.clock()
        self._pace = self.book.set_pace(self.endpoint, None, start(self.maximum))

    @property
    def limit(self) -> int:
        """This process's share of the limit; the shares of all processes add up to it."""
        return self._most * (self.rank + 1) // self.of - self._most * self.rank // self.of

    @property
    def _most(self) -> int:
        return max(self.of, min(self._pace.most, self.maximum))

    def slot(self, priority: int = 0) -> Slot:
        """A slot to wait for, lowest `priority` first, and to hold: an asynchronous context manager."""
        return Slot(self, priority)

    def _release(self) -> None:
        self.in_flight -= 1
        self._look()
        self._admit()

    def _look(self) -> None:
        """See what other processes made of the limit."""
        now = self.clock()
        if self.of > 1 and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._follow(self.book.pace(self.endpoint) or self._pace)

    def _follow(self, pace: Pace) -> None:
        if pace.epoch > self._pace.epoch:
            self._halved = self.clock()
        self._pace = pace

    async def _acquire(self, priority: int) -> None:
        if self.in_flight < self.limit and not self._waiting:
            self._take()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was handed over in the same turn of the loop as the cancellation.
                self.in_flight -= 1
                self._admit()
            raise

    def _take(self) -> None:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def _admit(self) -> None:
        while self._waiting and self.in_flight < self.limit:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._take()
                turn.set_result(None)

    def _throttled(self, pace: Pace, sent: float) -> None:
        self._answers = 0
        most = min(pace.most, self.maximum)
        drained = self._halved + (_ROUND_SECONDS if self._round is None else self._round)
        if pace.epoch == self._pace.epoch and sent >= drained and self._most > self.of:
            self._turn(Pace(max(self.of, most // 2), most, "429", pace.epoch + 1))

    def _succeeded(self, epoch: int, sent: float) -> None:
        took = self.clock() - sent
        self._round = took if self._round is None else self._round + _NEWEST * (took - self._round)
        if epoch != self._pace.epoch or self._most >= self.maximum:
            return
        if self._waiting or self.in_flight >= _SATURATED * self.limit:
            self._answers += 1
        if self._answers >= self._needed():
            self._answers = 0
            self._turn(Pace(self._most + 1, self._pace.ceiling, "growth", epoch))
            self._admit()

    def _needed(self) -> int:
        """Answers of this process for one step up. All processes count, so together they step once a round."""
        most, ceiling = self._most, self._pace.ceiling
        if most < _CLOSE * ceiling:
            return 1
        return most if most < ceiling - 1 else _PATIENCE * most

    def _turn(self, new: Pace) -> None:
        self._follow(self.book.set_pace(self.endpoint, self._pace, replace(new, at=time.time())))
