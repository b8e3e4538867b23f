"""The limiter: never more than allowed, giving way to 429, growing back, nobody forgotten."""

from __future__ import annotations

import asyncio

import pytest

from pytest_spiral.models.limiter import Limiter
from pytest_spiral.store import RunStore

pytestmark = pytest.mark.asyncio


async def test_never_more_than_the_limit_in_flight() -> None:
    """And never fewer while somebody waits."""
    limiter = Limiter(3)
    seen = []

    async def work() -> None:
        async with limiter.slot():
            seen.append(limiter.in_flight)
            await asyncio.sleep(0.001)

    await asyncio.gather(*(work() for _ in range(50)))

    assert (max(seen), limiter.in_flight) == (3, 0)


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


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def throttle(limiter: Limiter) -> None:
    """A 429 to a request sent long after whatever was before."""
    assert isinstance(limiter.clock, Clock)
    limiter.clock.now += 10
    async with limiter.slot() as slot:
        slot.throttled()


async def answer(limiter: Limiter, times: int) -> None:
    """That many answers, as many at once as the limiter lets through."""

    async def work() -> None:
        async with limiter.slot() as slot:
            await asyncio.sleep(0)
            slot.succeeded()

    await asyncio.gather(*(work() for _ in range(times)))


async def test_one_wave_of_429_halves_once(book: RunStore) -> None:
    """Requests sent before a halving say nothing about the new limit."""
    limiter = Limiter(8, "a", book=book)
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
    assert [(pace.most, pace.reason) for pace in book.paces()["a"]] == [(8, "start"), (4, "429")]


async def test_it_never_goes_below_one_and_grows_back(book: RunStore) -> None:
    """Up to where it started, and no further."""
    limiter = Limiter(4, "a", book=book, clock=Clock())
    for _ in range(5):
        await throttle(limiter)
    assert limiter.limit == 1

    await answer(limiter, 100)

    assert [pace.most for pace in book.paces()["a"]] == [4, 2, 1, 2, 3, 4]


async def test_growth_is_fast_far_below_what_was_too_high_and_slow_near_it() -> None:
    """One step an answer below 90 % of the limit that drew the 429, one a round to just below it, then one in 16."""
    limiter = Limiter(100, clock=Clock())
    await throttle(limiter)
    await throttle(limiter)
    assert limiter.limit == 25

    # 25 to 45: one step an answer. From there a round of 45, 46, ... answers each.
    await answer(limiter, 20 + 45 + 46)

    assert limiter.limit in (46, 47)
    # The last answers of a batch come when the limit is no longer in full use, and do not count.
    await answer(limiter, 4 * 49)
    assert limiter.limit == 49
    await answer(limiter, 10 * 49)
    assert limiter.limit == 49
    await answer(limiter, 10 * 49)
    assert limiter.limit == 50


async def test_what_was_too_high_is_what_the_refused_request_was_sent_under(book: RunStore) -> None:
    """By the time a 429 arrives the limit may have risen far beyond the number that drew it."""
    limiter = Limiter(64, "a", book=book, clock=Clock())
    await throttle(limiter)
    await answer(limiter, 40)

    assert isinstance(limiter.clock, Clock)
    limiter.clock.now += 10
    async with limiter.slot() as slot:
        risen = limiter.limit
        await answer(limiter, 80)
        assert limiter.limit > risen
        slot.throttled()

    assert (book.paces()["a"][-1].most, book.paces()["a"][-1].ceiling) == (risen // 2, risen)


@pytest.mark.parametrize(("maximum", "of"), [(10, 3), (7, 7), (64, 2), (1, 1)])
async def test_shares_of_all_processes_add_up_to_the_limit(maximum: int, of: int, book: RunStore) -> None:
    """Before and after a halving that one of them wrote down, each has at least one."""
    clock = Clock()
    limiters = [Limiter(maximum, "a", rank, of, book, clock=clock) for rank in range(of)]
    assert sum(limiter.limit for limiter in limiters) == maximum

    await throttle(limiters[0])
    clock.now += 1
    for limiter in limiters:
        async with limiter.slot():
            pass

    assert sum(limiter.limit for limiter in limiters) == max(of, maximum // 2)
    assert min(limiter.limit for limiter in limiters) >= 1


async def test_the_same_wave_in_two_processes_halves_once(book: RunStore) -> None:
    """The faster one writes it down, the other finds it written."""
    one, two = (Limiter(8, "a", rank, 2, book, clock=Clock()) for rank in range(2))

    await throttle(one)
    await throttle(two)

    assert [pace.most for pace in book.paces()["a"]] == [8, 4]


async def test_while_the_first_wave_drains_a_refusal_halves_nothing(book: RunStore) -> None:
    """One process may hold all that the endpoint bears; the other's requests are refused until those are answered."""
    clock = Clock()
    limiter = Limiter(64, "a", 1, 2, book, clock=clock)
    await throttle(limiter)

    for _ in range(5):
        clock.now += 0.1
        async with limiter.slot() as slot:
            slot.throttled()
    assert [pace.most for pace in book.paces()["a"]] == [64, 32]

    async with limiter.slot() as slot:
        clock.now += 0.2
        slot.succeeded()
    # An answer takes a fifth of a second: what is refused after that is too much.
    async with limiter.slot() as slot:
        slot.throttled()
    assert book.paces()["a"][-1].most < 32


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


@pytest.mark.parametrize(("maximum", "rank", "of"), [(0, 0, 1), (4, 2, 2), (2, 0, 3)])
async def test_nonsense_limits_are_refused(maximum: int, rank: int, of: int) -> None:
    """A process that may have nothing in flight would wait for ever."""
    with pytest.raises(ValueError, match="0 <= rank < of <= maximum"):
        Limiter(maximum, rank=rank, of=of)
