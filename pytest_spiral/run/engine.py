"""The engine: one event loop in one thread that works on all units of this process at once.

pytest runs items one after another; an item only waits for its own unit, which has long been under way.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
# Short enough for Ctrl-C to feel immediate, long enough to cost nothing.
_TICK_SECONDS = 0.2
# Code that is not ours may lose a cancellation, so it is repeated; and clients may wait for an endpoint to say goodbye.
_CANCEL_AGAIN_SECONDS = 1.0
_MOST_CLOSE_SECONDS = 10.0
# Longer than the 30 s that one access to the store may wait for another process: then it is left to the end of ours.
_MOST_THREAD_SECONDS = 45.0


class Engine:
    """Runs coroutines in the background. Start it late: nothing is imported or sent before.

    loop: one that the caller runs and closes; by default the engine has its own, in a thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        if loop is None:
            self._thread = threading.Thread(target=self._loop.run_forever, name="spiral-engine", daemon=True)
            self._thread.start()
        self._futures: dict[Hashable, concurrent.futures.Future[Any]] = {}
        self._times: dict[Hashable, tuple[float, float]] = {}
        # Each is changed by one thread only: that of the caller, and that of the loop.
        self.submitted = self.ended = 0
        self._is_closed = False

    @property
    def under_way(self) -> int:
        """Units that have been submitted and have not ended."""
        return self.submitted - self.ended

    def submit(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
        """Start the unit `key`; a unit that is already known is not started again."""
        known = self._futures.get(key)
        if known is None:
            self.submitted += 1
            known = self._futures[key] = self.start(self._timed(key, make()))
        return known

    async def _timed(self, key: Hashable, work: Coroutine[Any, Any, T]) -> T:
        at, began = time.time(), time.perf_counter()
        try:
            return await work
        finally:
            # What ends because it is cancelled has no result.
            if not self._is_closed:
                self._times[key] = at, time.perf_counter() - began
            self.ended += 1

    def untold(self) -> tuple[Hashable, ...]:
        """Units that have ended and of which `times` was not told yet."""
        return tuple(self._times)

    def times(self, key: Hashable) -> tuple[float, float]:
        """When a unit that has ended was started, in seconds since 1970, and how many seconds it took. Told once."""
        return self._times.pop(key)

    def release(self, key: Hashable) -> None:
        """Keep the result of a unit no longer. Submitted again, it is started again."""
        self._futures.pop(key, None)

    def wait(self, future: concurrent.futures.Future[T], tick: Callable[[], None] | None = None) -> T:
        """Result of a unit. Waits in short steps, so that Ctrl-C is heard, and calls `tick` after each."""
        # A unit may itself end in TimeoutError, and it may end between two looks: only its future says whether it did.
        while not concurrent.futures.wait([future], timeout=_TICK_SECONDS).done:
            if tick is not None:
                tick()
        return future.result()

    def finished(self) -> list[Any]:
        """Results of the units that have come to their end and that nobody has waited for."""
        ended = (future for key, future in self._futures.items() if key in self._times and future.done())
        return [each.result() for each in ended if each.exception() is None]

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run one coroutine in the engine's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, *closers: Callable[[], Awaitable[None]]) -> None:
        """Cancel what is left, release clients in their own loop, stop the thread. Harmless when called twice.

        Takes about a minute at most: the thread of a loop that still does not end then ends with the process.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is None:
            self._loop.run_until_complete(self._drain(closers))
        else:
            drained = self.start(self._drain(closers))
            concurrent.futures.wait([drained], timeout=_MOST_THREAD_SECONDS)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_MOST_CLOSE_SECONDS)
            if drained.done() and not self._thread.is_alive():
                self._loop.close()
                drained.result()
        for future in self._futures.values():
            # Fetched here, so that no forgotten exception is reported on some unrelated test.
            if future.done() and not future.cancelled():
                future.exception()

    async def _drain(self, closers: tuple[Callable[[], Awaitable[None]], ...]) -> None:
        left = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        for _ in range(round(_MOST_CLOSE_SECONDS / _CANCEL_AGAIN_SECONDS) if left else 0):
            for task in left:
                task.cancel()
            ended, left = await asyncio.wait(left, timeout=_CANCEL_AGAIN_SECONDS)
            for task in ended:
                # Fetched, so that it is not reported as forgotten.
                _ = task.cancelled() or task.exception()
            if not left:
                break
        for closer in closers:
            with suppress(TimeoutError):
                async with asyncio.timeout(_MOST_CLOSE_SECONDS):
                    await closer()
        await self._loop.shutdown_asyncgens()
