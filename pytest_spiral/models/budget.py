"""The hard limit on what a run may cost: every attempt is paid for in advance at its worst case.

A request body of n bytes is at most n prompt tokens: no tokeniser makes more than one token of a byte, and the JSON
around the messages is longer than any chat template. A reply is at most as long as its token limit. What an attempt
really cost replaces its worst case once the endpoint has said it; an attempt that was lost on the way keeps it, because
it may have been billed.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_spiral.chat import ChatRequest, Role, Usage
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.models.parameters import LIMITS, Price
from pytest_spiral.status import ReasonCode

__all__ = ["Budget", "Charge", "Ledger", "worst_case"]

_LOOK_AGAIN_SECONDS = 0.1
_TABLE = """
CREATE TABLE IF NOT EXISTS spending (
  process TEXT PRIMARY KEY, pid INTEGER NOT NULL, spent REAL NOT NULL, lost REAL NOT NULL, reserved REAL NOT NULL
) WITHOUT ROWID
"""


def worst_case(price: Price, request: ChatRequest, body_bytes: int) -> float:
    """USD that one attempt at a request can cost at most. Raises KeyError for a request without a token limit."""
    limit = next((request.params[name] for name in LIMITS if name in request.params), None)
    if limit is None:
        raise KeyError(f"{request.model}: no token limit")
    return max(price.cost(Usage(body_bytes, cached, limit)) for cached in (0, body_bytes))


class Ledger:
    """What a run has spent, in its database: one row per process that ever worked on it. Amounts in USD.

    spent: as the endpoints reported. lost: worst cases of attempts whose cost nobody will tell any more. reserved:
    worst cases of attempts in flight. A process that dies leaves its reservations, which then count like what was lost.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._connection.execute(_TABLE)
        except sqlite3.Error as error:
            raise StoreError(
                f"{path}: the accounts cannot be kept ({error}); check the path and its permissions"
            ) from None
        self._process = uuid.uuid4().hex

    def begin(self, spent_before: float) -> None:
        """By the leading process, once, before anything is sent: take over what earlier sessions left.

        spent_before: cost of all replies in the store, some of which may have come while nobody kept accounts.
        """
        connection = self._connection
        connection.execute("UPDATE spending SET lost = lost + reserved, reserved = 0")
        known = connection.execute("SELECT coalesce(sum(spent), 0) FROM spending").fetchone()[0]
        if spent_before > known:
            connection.execute(
                "INSERT INTO spending VALUES (?, 0, ?, 0, 0)", (f"before-{self._process}", spent_before - known)
            )

    def reserve(self, amount: float, limit: float) -> bool:
        """Set `amount` aside if everything together stays within `limit`; False, and nothing done, if it would not."""
        # One statement is one transaction: two processes cannot both take the last dollar.
        done = self._connection.execute(
            "INSERT INTO spending SELECT ?, ?, 0, 0, ? "
            "WHERE (SELECT coalesce(sum(spent + lost + reserved), 0) FROM spending) + ? <= ? "
            "ON CONFLICT (process) DO UPDATE SET reserved = reserved + excluded.reserved",
            (self._process, os.getpid(), amount, amount, limit),
        )
        return done.rowcount > 0

    def settle(self, amount: float, *, spent: float = 0.0, lost: float = 0.0) -> None:
        """Give a reservation back and book what became of it."""
        self._connection.execute(
            "UPDATE spending SET reserved = max(0, reserved - ?), spent = spent + ?, lost = lost + ? WHERE process = ?",
            (amount, spent, lost, self._process),
        )

    def others_at_work(self) -> bool:
        """Whether another living process has attempts in flight, which may turn out cheaper than their worst case."""
        rows = self._connection.execute(
            "SELECT pid FROM spending WHERE reserved > 0 AND process <> ?", (self._process,)
        ).fetchall()
        return any(_is_alive(pid) for (pid,) in rows)

    def totals(self) -> tuple[float, float]:
        """USD spent as reported, USD that may have been spent besides."""
        spent, lost = self._connection.execute(
            "SELECT coalesce(sum(spent), 0), coalesce(sum(lost + reserved), 0) FROM spending"
        ).fetchone()
        return float(spent), float(lost)

    def close(self) -> None:
        """Close the connection. Harmless when called twice."""
        self._connection.close()


def _is_alive(pid: int) -> bool:
    # Elsewhere signal 0 is no question but Ctrl-C: there nobody waits for others.
    if os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(slots=True)
class Charge:
    """One attempt's place in the accounts."""

    worst: float
    price: Price
    spent: float = 0.0
    lost: float = 0.0

    def answered(self, usage: Usage) -> None:
        """The endpoint answered. One that does not count tokens is charged the worst case."""
        if usage.prompt_tokens or usage.completion_tokens:
            self.spent = self.price.cost(usage)
        else:
            self.lost = self.worst

    def vanished(self) -> None:
        """No usable answer came, and the attempt may have been billed all the same."""
        self.lost = self.worst


class Budget:
    """At most `limit` USD, over all processes and sessions of a run. Belongs to one event loop.

    prices: of every model by role and model id; a model without one, or that costs nothing, is not held back.
    """

    def __init__(self, ledger: Ledger, limit: float, prices: Mapping[tuple[Role, str], Price]) -> None:
        self.limit = limit
        self._ledger = ledger
        self._prices = {key: price for key, price in prices.items() if price.input or price.output}
        self._open = 0
        self._settled: asyncio.Event | None = None
        self._refused: str | None = None

    @asynccontextmanager
    async def charge(self, request: ChatRequest, body_bytes: int) -> AsyncIterator[Charge | None]:
        """Hold one attempt's worst case while it is under way; None where it costs nothing.

        Waits while attempts in flight may still turn out cheaper than their worst case.
        Raises `ChatError` of kind "budget", once and for all, when the attempt does not fit.
        """
        price = self._prices.get((request.role, request.model))
        if price is None:
            yield None
            return
        worst = worst_case(price, request, body_bytes)
        await self._reserve(worst)
        charge = Charge(worst, price)
        try:
            yield charge
        except asyncio.CancelledError:
            charge.vanished()
            raise
        finally:
            self._ledger.settle(worst, spent=charge.spent, lost=charge.lost)
            self._open -= 1
            self._event().set()

    async def _reserve(self, worst: float) -> None:
        while self._refused is None:
            if self._ledger.reserve(worst, self.limit):
                self._open += 1
                return
            if not self._open and not self._ledger.others_at_work():
                spent, lost = self._ledger.totals()
                besides = f" and up to {lost:.4f} for calls whose cost is not known" if lost else ""
                self._refused = (
                    f"the budget of {self.limit:g} USD is used up: {spent:.4f} spent{besides}, and the next call may "
                    f"cost {worst:.4f}; resume with the same --run-id and a higher --max-cost"
                )
                break
            event = self._event()
            event.clear()
            # Of what other processes settle nobody tells: look again soon.
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), _LOOK_AGAIN_SECONDS)
        assert self._refused is not None
        raise ChatError(ReasonCode.BUDGET, self._refused, attempts=0)

    def _event(self) -> asyncio.Event:
        if self._settled is None:
            self._settled = asyncio.Event()
        return self._settled

    def close(self) -> None:
        """Close the accounts. Harmless when called twice."""
        self._ledger.close()
