"""Waiting for a unit of the engine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading

import pytest

from pytest_spiral.run.engine import Engine


class EndsBetweenLooks(concurrent.futures.Future[str]):
    """A unit that ends just after a wait for it has timed out."""

    def result(self, timeout: float | None = None) -> str:
        try:
            return super().result(timeout)
        except TimeoutError:
            self.set_result("reply")
            raise


def test_a_unit_may_end_just_after_a_wait_for_it() -> None:
    """Its result is handed out, whenever it came."""
    engine = Engine()
    unit = EndsBetweenLooks()
    try:
        assert engine.wait(unit, tick=lambda: None if unit.done() else unit.set_result("reply")) == "reply"
    finally:
        engine.close()


def test_a_unit_may_itself_end_in_a_timeout() -> None:
    """Its error is raised, and not taken for a wait that has to go on."""
    engine = Engine()

    async def late() -> str:
        raise TimeoutError("the unit's own")

    try:
        with pytest.raises(TimeoutError, match="the unit's own"):
            engine.wait(engine.submit("unit", late))
    finally:
        engine.close()


def test_units_under_way_are_those_that_have_not_ended() -> None:
    """A unit that is submitted again counts once; neither count is ever changed by two threads."""
    engine = Engine()
    gate = threading.Event()

    async def waits() -> None:
        await asyncio.to_thread(gate.wait)

    try:
        units = [engine.submit(key, waits) for key in ("one", "other", "one")]
        assert (engine.under_way, engine.ended) == (2, 0)
        gate.set()
        for unit in units:
            engine.wait(unit)
        assert (engine.submitted, engine.under_way, engine.ended) == (2, 0, 2)
    finally:
        gate.set()
        engine.close()
