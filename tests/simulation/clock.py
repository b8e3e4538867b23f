"""Virtual time: event loops that are stepped one iteration at a time and share one clock."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")
__all__ = ["START", "Clock", "VirtualLoop"]

# Seconds since 1970 at which every simulation begins.
START = 1_800_000_000.0


@dataclass
class Clock:
    """Seconds since the simulation began. skew: by how much the wall clock is wrong."""

    now: float = 0.0
    skew: float = 0.0

    def wall(self) -> float:
        """What `time.time` says."""
        return START + self.now + self.skew


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that does nothing by itself: `step` runs one iteration, and time passes only on its clock."""

    def __init__(self, clock: Clock) -> None:
        self._virtual = clock
        self._ready_soon = False
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        super().__init__()

    def time(self) -> float:
        return self._virtual.now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._ready_soon = True
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._ready_soon = True
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def next_timer(self) -> float | None:
        """When the next timer fires, None without one."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def is_ready(self) -> bool:
        """Whether a step would do anything now."""
        when = self.next_timer()
        return self._ready_soon or (when is not None and when <= self._virtual.now)

    def step(self) -> None:
        """Run one iteration."""
        self._ready_soon = False
        while self._timers and self._timers[0][0] <= self._virtual.now:
            heapq.heappop(self._timers)
        super().call_soon(self.stop)
        self.run_forever()
