"""How many requests may be in flight at once in this process, and how that number gives way to a busy endpoint.

Additive increase, multiplicative decrease: a 429 halves the limit, a full round of answers at the limit raises it by
one. Requests sent before a halving say nothing about the new limit, so their 429s do not halve it again.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LimitChange", "Limiter", "Slot"]

# The share of the limit that must be in use for an answer to say anything about a higher limit.
_SATURATED = 0.8


@dataclass(frozen=True, slots=True)
class LimitChange:
    """One step of the limit. at: seconds of the limiter's clock."""

    at: float
    limit: int
    reason: Literal["start", "429", "growth"]


@dataclass(slots=True)
class Slot:
    """The right to have one request in flight."""

    _limiter: Limiter
    _epoch: int

    def throttled(self) -> None:
        """The endpoint answered 429."""
        self._limiter._throttled(self._epoch)

    def succeeded(self) -> None:
        """The endpoint answered."""
        self._limiter._succeeded(self._epoch)


@dataclass(slots=True)
class Limiter:
    """At most `maximum` requests in flight. Belongs to one event loop.

    limit: how many may be in flight now. in_flight, peak: how many are, and were at most.
    history: every value `limit` has had.
    """

    maximum: int
    minimum: int = 1
    clock: Callable[[], float] = time.monotonic
    limit: int = field(init=False)
    in_flight: int = field(init=False, default=0)
    peak: int = field(init=False, default=0)
    history: list[LimitChange] = field(init=False, default_factory=list)
    _epoch: int = field(init=False, default=0)
    _answers: int = field(init=False, default=0)
    _order: itertools.count[int] = field(init=False, default_factory=itertools.count)
    _waiting: list[tuple[int, int, asyncio.Future[None]]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise ValueError(f"need 1 <= minimum <= maximum, got {self.minimum} and {self.maximum}")
        self._set(self.maximum, "start")

    @asynccontextmanager
    async def slot(self, priority: int = 0) -> AsyncIterator[Slot]:
        """Wait for a free slot, lowest `priority` first, and hold it."""
        await self._acquire(priority)
        try:
            yield Slot(self, self._epoch)
        finally:
            self.in_flight -= 1
            self._admit()

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

    def _throttled(self, epoch: int) -> None:
        self._answers = 0
        if epoch == self._epoch and self.limit > self.minimum:
            self._set(max(self.minimum, self.limit // 2), "429")
            self._epoch += 1

    def _succeeded(self, epoch: int) -> None:
        if epoch != self._epoch or self.limit >= self.maximum:
            return
        if self._waiting or self.in_flight >= _SATURATED * self.limit:
            self._answers += 1
        if self._answers >= self.limit:
            self._answers = 0
            self._set(self.limit + 1, "growth")
            self._admit()

    def _set(self, limit: int, reason: Literal["start", "429", "growth"]) -> None:
        self.limit = limit
        self.history.append(LimitChange(self.clock(), limit, reason))
