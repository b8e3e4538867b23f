"""Waiting for a unit of the engine."""

from __future__ import annotations

import concurrent.futures

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
