"""The limiter: never more than allowed, giving way to 429, growing back, nobody forgotten."""

from __future__ import annotations

import asyncio

import pytest

from pytest_spiral.chat.limits import Limiter

pytestmark = pytest.mark.asyncio


async def test_never_more_than_the_limit_in_flight() -> None:
    """And never fewer while somebody waits."""
    limiter = Limiter(3)

    async def work() -> None:
        async with limiter.slot():
            await asyncio.sleep(0.001)

    await asyncio.gather(*(work() for _ in range(50)))

    assert (limiter.peak, limiter.in_flight) == (3, 0)


async def test_waiting_goes_by_priority_then_by_arrival() -> None:
    """Turns of a conversation before judges."""
    limiter = Limiter(1)
    order: list[str] = []

    async def work(name: str, priority: int) -> None:
        async with limiter.slot(priority):
            order.append(name)
            await asyncio.sleep(0)

    async with limiter.slot():
        tasks = [asyncio.create_task(work(n, p)) for n, p in (("j1", 1), ("t1", 0), ("j2", 1), ("t2", 0))]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)

    assert order == ["t1", "t2", "j1", "j2"]


async def test_one_wave_of_429_halves_once() -> None:
    """Requests sent before a halving say nothing about the new limit."""
    limiter = Limiter(8)
    gate = asyncio.Event()

    async def work() -> None:
        async with limiter.slot() as slot:
            await gate.wait()
            slot.throttled()

    tasks = [asyncio.create_task(work()) for _ in range(8)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*tasks)

    assert limiter.limit == 4
    assert [(c.limit, c.reason) for c in limiter.history] == [(8, "start"), (4, "429")]


async def test_it_never_goes_below_the_minimum_and_grows_back_slowly() -> None:
    """One more per full round of answers at the limit, up to where it started."""
    limiter = Limiter(4)
    for _ in range(5):
        async with limiter.slot() as slot:
            slot.throttled()
    assert limiter.limit == 1

    async def work() -> None:
        async with limiter.slot() as slot:
            await asyncio.sleep(0)
            slot.succeeded()

    await asyncio.gather(*(work() for _ in range(60)))

    assert [c.limit for c in limiter.history] == [4, 2, 1, 2, 3, 4]


async def test_answers_far_below_the_limit_do_not_raise_it() -> None:
    """One request at a time proves nothing about sixty-four."""
    limiter = Limiter(64)
    async with limiter.slot() as slot:
        slot.throttled()
    for _ in range(200):
        async with limiter.slot() as slot:
            slot.succeeded()

    assert limiter.limit == 32


async def test_cancelled_waiters_and_holders_give_their_slots_back() -> None:
    """Whatever the moment of the cancellation."""
    limiter = Limiter(2)

    async def work() -> None:
        async with limiter.slot():
            await asyncio.sleep(0.002)

    for moment in range(12):
        tasks = [asyncio.create_task(work()) for _ in range(8)]
        for _ in range(moment):
            await asyncio.sleep(0.0005)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

        assert limiter.in_flight == 0
    async with asyncio.timeout(1):
        await work()


async def test_nonsense_limits_are_refused() -> None:
    """A limit of nothing would wait for ever."""
    with pytest.raises(ValueError, match="1 <= minimum"):
        Limiter(0)
