"""Pausing an endpoint that fails: a circuit breaker that all calls of a process to one model share.

Several failures in a row, without an answer in between, open the circuit. From then on nothing is sent but one probe
after each pause, and pauses double. An answer closes the circuit, and whoever waited goes on, as the limiter allows.
When nothing was answered for as long as patience lasts, all who wait give up; whoever comes later waits for the next
probe and fails with it. Time is that of the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pytest_spiral.models.attempt import AttemptError
from pytest_spiral.models.endpoint import Endpoint

# Fewer would pause an endpoint for the chance failures of a few requests.
_IN_A_ROW = 5


class Turn:
    """One call's permission to send a request."""


class Circuit:
    """The state of one endpoint. Belongs to one event loop.

    Attributes:
        answers: How often the endpoint has answered.
        given_up: Whether patience has ended and no answer has come since.
        next_probe: When the present pause ends, in the loop's time; None while there is none.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.answers = 0
        self.given_up = False
        self.next_probe: float | None = None
        self._patience = endpoint.patience
        self._policy = endpoint.retry
        self._pause = self._policy.first_wait
        self._failures = 0
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._probe_is_due = False
        self._probe: Turn | None = None
        self._waiting: deque[tuple[Turn, asyncio.Future[None]]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether the endpoint is paused."""
        return self._failures >= _IN_A_ROW

    def patience_left(self) -> float:
        """Seconds until waiting ends if nothing is answered."""
        if self._since is None:
            return self._patience
        return max(0.0, self._patience - (asyncio.get_running_loop().time() - self._since))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait until a request may be sent. Raises `AttemptError`, the last one, where the circuit has given up."""
        turn = Turn()
        try:
            if self.is_open and self._probe_is_due:
                self._probe, self._probe_is_due = turn, False
            elif self.is_open:
                goes_on: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append((turn, goes_on))
                await goes_on
            yield turn
        finally:
            if self._probe is turn:
                # It was not sent, or says nothing about the endpoint.
                self._probe = None
                self._offer_probe()

    def admits(self, turn: Turn) -> bool:
        """Whether a request may be sent still: the circuit may have opened while it waited for something else."""
        return not self.is_open or self._probe is turn

    def answered(self) -> None:
        """The endpoint has answered: everybody goes on."""
        self.answers += 1
        self._failures, self._since, self._pause = 0, None, self._policy.first_wait
        self.given_up, self._probe, self._probe_is_due = False, None, False
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.next_probe = None
        self._release()

    def failed(self, turn: Turn, error: AttemptError, *, lasting: bool = True) -> None:
        """A request has failed. lasting: False for failures that only tell that a pause is not over yet."""
        probed = self._probe is turn
        if not lasting and not probed:
            return
        loop = asyncio.get_running_loop()
        self._since = loop.time() if self._since is None else self._since
        self._failures += 1
        if self.is_open and not self.patience_left():
            self.given_up = True
            self._release(error)
        if probed:
            self._probe = None
            self._pause = min(2 * self._pause, self._policy.max_wait)
        if probed or self._failures == _IN_A_ROW:
            pause = max(self._pause, min(error.retry_after or 0.0, self.patience_left()))
            self.next_probe = loop.time() + pause
            self._timer = loop.call_at(self.next_probe, self._offer_probe)

    def _offer_probe(self) -> None:
        """Let the one who has waited longest send the probe, or whoever comes next."""
        self._probe_is_due, self.next_probe = True, None
        while self._waiting and self._probe_is_due:
            turn, goes_on = self._waiting.popleft()
            if not goes_on.done():
                self._probe, self._probe_is_due = turn, False
                goes_on.set_result(None)

    def _release(self, failed: AttemptError | None = None) -> None:
        """Let everybody who waits go on, or fail."""
        while self._waiting:
            _, goes_on = self._waiting.popleft()
            if not goes_on.done() and failed is None:
                goes_on.set_result(None)
            elif failed is not None and not goes_on.done():
                goes_on.set_exception(replace(failed))
