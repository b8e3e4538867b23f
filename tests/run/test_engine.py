"""Waiting for a unit of the engine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time

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


def test_what_is_cancelled_is_not_finished() -> None:
    """Progress counts what has ended, and a report after Ctrl-C holds it; the rest is missing."""
    engine = Engine()

    async def ends() -> str:
        return "result"

    async def hangs() -> None:
        await asyncio.Event().wait()

    try:
        concurrent.futures.wait([engine.submit("one", ends)])
        engine.submit("other", hangs)
    finally:
        engine.close()

    assert (engine.finished(), engine.untold()) == (["result"], ("one",))


def test_a_unit_that_loses_its_cancellation_does_not_keep_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cancelled again, and a client that never closes is given up; nothing of it can keep a run from its end."""
    monkeypatch.setattr("pytest_spiral.run.engine._CANCEL_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr("pytest_spiral.run.engine._MOST_CLOSE_SECONDS", 0.2)
    engine = Engine()
    begun, cancelled, never = threading.Event(), [], asyncio.Event()

    async def stubborn(times: int) -> None:
        begun.set()
        for _ in range(times):
            try:
                await never.wait()
            except asyncio.CancelledError:
                cancelled.append(times)

    async def closer() -> None:
        await never.wait()

    engine.submit("twice", lambda: stubborn(2))
    assert begun.wait(5)
    ended = threading.Thread(target=engine.close, args=(closer,), daemon=True)
    ended.start()
    ended.join(10)

    assert not ended.is_alive()
    assert cancelled == [2, 2]
    assert engine.under_way == 0


def test_a_thread_that_is_held_up_ends_with_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that blocks the loop cannot be cancelled: closing waits for it, but not for ever."""
    monkeypatch.setattr("pytest_spiral.run.engine._MOST_CLOSE_SECONDS", 0.1)
    monkeypatch.setattr("pytest_spiral.run.engine._MOST_THREAD_SECONDS", 0.1)
    loop, begun, gate = asyncio.new_event_loop(), threading.Event(), threading.Event()
    monkeypatch.setattr("asyncio.new_event_loop", lambda: loop)
    engine = Engine()

    async def blocks() -> None:
        begun.set()
        gate.wait()

    engine.submit("unit", blocks)
    assert begun.wait(5)
    ended = threading.Thread(target=engine.close, daemon=True)
    ended.start()
    ended.join(10)
    stuck = ended.is_alive()
    gate.set()
    while loop.is_running():
        time.sleep(0.01)
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop)))
    loop.close()

    assert not stuck
    engine.close()
