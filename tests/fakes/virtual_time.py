"""An event loop whose clock only moves when nothing is left to do, and a model endpoint inside it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pytest_spiral.models.attempt import HttpAnswer, refused
from pytest_spiral.models.completion import read_error
from pytest_spiral.models.endpoint import Endpoint

T = TypeVar("T")
OK = b'{"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}'


class _Selector(selectors.SelectSelector):
    """Waits for nothing: what would be waited for is added to the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits and nothing is due: this would hang for ever")
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for coroutines without real I/O."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class FakeEndpoint:
    """Answers in memory. Serves as a client and as the callable that makes one.

    status: called with the loop's time and the number of the request, gives a status and headers.

    Attributes:
        sent: When each request came, in the loop's time.
    """

    def __init__(
        self, status: Callable[[float, int], tuple[int, Mapping[str, str]]], latency: float = 0.1, body: bytes = OK
    ) -> None:
        self.sent: list[float] = []
        self._status = status
        self._latency = latency
        self._body = body
        self._endpoint: Endpoint | None = None

    def __call__(self, endpoint: Endpoint) -> FakeEndpoint:
        self._endpoint = endpoint
        return self

    async def request(self, path: str, content: bytes | None = None) -> HttpAnswer:
        now = asyncio.get_running_loop().time()
        self.sent.append(now)
        status, headers = self._status(now, len(self.sent) - 1)
        await asyncio.sleep(self._latency)
        if status == 200:
            return HttpAnswer(200, {}, self._body)
        assert self._endpoint is not None
        raise refused(self._endpoint, status, read_error(b'{"error": {"message": "no"}}'), headers)

    async def close(self) -> None:
        pass
