"""The hard limit on what a run may cost: every attempt is reserved in advance at its worst case.

A request body of n bytes is at most n prompt tokens: no tokeniser makes more than one token of a byte, and the JSON
around the messages is longer than any chat template. A reply is at most as long as its token limit. The actual cost
replaces the worst case once the endpoint has reported it. An attempt that failed on the way keeps its worst case,
because it may have been billed.
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

from pytest_spiral.chat import ChatRequest, Role, TokenUsage, token_limit
from pytest_spiral.errors import ChatError, StoreError
from pytest_spiral.models.parameters import Price
from pytest_spiral.status import ReasonCode

# What other processes spend is not announced, so a waiting attempt looks again: soon, but not in a busy loop.
_LOOK_AGAIN_SECONDS = 0.1
# Seconds that a booking waits for another process of the run; a booking takes less than a millisecond.
_BUSY_SECONDS = 30
# USD below which a reservation is an error of rounding; others would wait for it to be settled, for ever.
_NOTHING = 1e-9
_TABLE = """
CREATE TABLE IF NOT EXISTS spending (
  process TEXT PRIMARY KEY, pid INTEGER NOT NULL, spent REAL NOT NULL, lost REAL NOT NULL, reserved REAL NOT NULL
) WITHOUT ROWID
"""


def worst_case(price: Price, request: ChatRequest, body_bytes: int) -> float:
    """USD that one attempt at a request can cost at most. Raises `KeyError` for a request without a token limit."""
    limit = token_limit(request.params)
    if limit is None:
        raise KeyError(f"{request.model}: no token limit")
    return max(price.cost(TokenUsage(body_bytes, cached, limit.value)) for cached in (0, body_bytes))


class Ledger:
    """What a run has spent in USD, in its database: one row per process that ever worked on it.

    A row has what endpoints reported (spent), worst cases of attempts whose cost will never be known (lost), and worst
    cases of attempts in flight (reserved). A process that dies leaves its reservations, which then count as lost.
    Raises `StoreError` where the database cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = uuid.uuid4().hex
        try:
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._failure(error) from None
        self._book(_TABLE)

    def begin(self, spent_before: float) -> None:
        """Take over what earlier sessions left. For the controller, once, before anything is sent.

        Args:
            spent_before: Cost of all stored replies, some of which may have come while no accounts were kept.
        """
        self._book("UPDATE spending SET lost = lost + reserved, reserved = 0")
        known, _ = self.totals()
        if spent_before > known:
            row = (f"before-{self._process}", spent_before - known)
            self._book("INSERT INTO spending VALUES (?, 0, ?, 0, 0)", *row)

    def reserve(self, amount: float, limit: float) -> bool:
        """Reserve `amount` if everything together stays within `limit`; otherwise do nothing and return False."""
        before = self._connection.total_changes
        # One statement is one transaction: two processes cannot both take the last dollar.
        self._book(
            "INSERT INTO spending SELECT ?, ?, 0, 0, ? "
            "WHERE (SELECT coalesce(sum(spent + lost + reserved), 0) FROM spending) + ? <= ? "
            "ON CONFLICT (process) DO UPDATE SET reserved = reserved + excluded.reserved",
            *(self._process, os.getpid(), amount, amount, limit),
        )
        return self._connection.total_changes > before

    def settle(self, amount: float, *, spent: float = 0.0, lost: float = 0.0) -> None:
        """Release a reservation and book its actual cost."""
        self._book(
            "UPDATE spending SET reserved = CASE WHEN reserved - ? > ? THEN reserved - ? ELSE 0 END, "
            "spent = spent + ?, lost = lost + ? WHERE process = ?",
            *(amount, _NOTHING, amount, spent, lost, self._process),
        )

    def others_at_work(self) -> bool:
        """Whether another living process has attempts in flight, which may cost less than their worst case."""
        rows = self._book("SELECT pid FROM spending WHERE reserved > 0 AND process <> ?", self._process)
        return any(_is_alive(int(pid)) for (pid,) in rows)

    def totals(self) -> tuple[float, float]:
        """USD spent as reported, and USD that may have been spent besides."""
        ((spent, lost),) = self._book("SELECT coalesce(sum(spent), 0), coalesce(sum(lost + reserved), 0) FROM spending")
        return float(spent), float(lost)

    def close(self) -> None:
        """Close the connection. Harmless when called twice."""
        self._connection.close()

    def _book(self, statement: str, *values: str | float) -> list[tuple[float, ...]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> StoreError:
        says = f"{self._path}: the accounts cannot be kept ({error}); check disk, path and permissions"
        return StoreError(says)


def _is_alive(pid: int) -> bool:
    # On other systems signal 0 is Ctrl-C, not a question: there nobody waits for other processes.
    if os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    with suppress(OSError):
        # A worker that was killed is a zombie until the run ends: it answers signals, and its reservations stay.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    return True


@dataclass(slots=True)
class Charge:
    """One attempt in the accounts, in USD."""

    worst: float
    price: Price
    spent: float = 0.0
    lost: float = 0.0

    def settle(self, usage: TokenUsage) -> None:
        """Book an answer. An endpoint that does not count tokens is charged the worst case."""
        if usage.prompt_tokens or usage.completion_tokens:
            self.spent = self.price.cost(usage)
        else:
            self.lost = self.worst

    def lose(self) -> None:
        """Book an attempt without a usable answer that may have been billed all the same."""
        self.lost = self.worst


class Budget:
    """At most `limit` USD, over all processes and sessions of a run. Belongs to one event loop.

    Args:
        prices: Price of every model by role and model id. A model that is missing or free is not held back.
    """

    def __init__(self, ledger: Ledger, limit: float, prices: Mapping[tuple[Role, str], Price]) -> None:
        self.limit = limit
        self._ledger = ledger
        self._prices = {key: price for key, price in prices.items() if price.input or price.output}
        self._in_flight = 0
        self._settled = asyncio.Event()
        self._refusal: str | None = None

    @asynccontextmanager
    async def charge(self, request: ChatRequest, body_bytes: int) -> AsyncIterator[Charge | None]:
        """Reserve one attempt's worst case while it is in flight; None where it costs nothing.

        Waits while attempts in flight may still turn out cheaper than their worst case.

        Raises:
            ChatError: The attempt does not fit (`budget`); from then on every attempt is refused.
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
            charge.lose()
            raise
        finally:
            self._in_flight -= 1
            self._settled.set()
            self._ledger.settle(worst, spent=charge.spent, lost=charge.lost)

    async def _reserve(self, worst: float) -> None:
        while self._refusal is None:
            if self._ledger.reserve(worst, self.limit):
                self._in_flight += 1
                return
            if not self._in_flight and not self._ledger.others_at_work():
                spent, lost = self._ledger.totals()
                besides = f" and up to {lost:.4f} for calls whose cost is not known" if lost else ""
                self._refusal = (
                    f"the budget of {self.limit:g} USD is used up: {spent:.4f} spent{besides}, and the next call may "
                    f"cost {worst:.4f}; resume with the same --run-id and a higher --max-cost"
                )
                break
            self._settled.clear()
            # Not `asyncio.wait_for`: in Python 3.11 it loses a cancellation that comes as its wait ends, and a stopped
            # run would send one more request and wait for the answer.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                    await self._settled.wait()
        raise ChatError(ReasonCode.BUDGET, self._refusal, attempts=0)

    def close(self) -> None:
        """Close the accounts. Harmless when called twice."""
        self._ledger.close()
