"""An endpoint that fails for a while: everybody waits, one asks, nothing is lost, and patience has an end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from itertools import pairwise

import pytest

from pytest_spiral.chat import ChatReply
from pytest_spiral.errors import ChatError
from pytest_spiral.models.circuit import Circuit
from pytest_spiral.models.endpoint import Endpoint, RetryPolicy
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.models.openai_compatible import OpenAICompatible
from tests.fakes.virtual_time import FakeEndpoint, run
from tests.models.client import ask

UNITS = 75


def model(server: FakeEndpoint, *, limit: int = 64, patience: float = 600.0) -> OpenAICompatible:
    """A client of an endpoint in memory, in virtual time."""
    endpoint = Endpoint("evaluated", "http://127.0.0.1:1", patience=patience)
    clock = asyncio.get_running_loop().time
    return OpenAICompatible(endpoint, limiter=Limiter(limit, clock=clock), rng=random.Random(1), connect=server)


async def ask_all(client: OpenAICompatible, count: int = UNITS) -> list[ChatReply | ChatError]:
    """What became of so many calls made at once."""
    outcomes = await asyncio.gather(*(client.complete(ask(str(i))) for i in range(count)), return_exceptions=True)
    known = [each for each in outcomes if isinstance(each, ChatReply | ChatError)]
    assert len(known) == len(outcomes)
    return known


async def ask_once(server: FakeEndpoint) -> ChatReply:
    return await model(server).complete(ask())


@pytest.mark.parametrize("limit", [1, 4, 64])
@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (503, {}),
        (500, {}),
        (529, {}),
        (408, {}),
        (429, {}),
        (429, {"retry-after": "0"}),
        (429, {"retry-after": "-5"}),
        (429, {"retry-after": "nan"}),
        (429, {"retry-after": "Thu, 01 Jan 2015 00:00:00 GMT"}),
        (503, {"retry-after": "0"}),
        (503, {"retry-after-ms": "0"}),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "-".join(map("=".join, value.items())) or "none",
)
def test_a_minute_of_failures_loses_nothing(status: int, headers: Mapping[str, str], limit: int) -> None:
    """All calls are answered soon after the endpoint works again, and meanwhile it is left alone."""
    server = FakeEndpoint(lambda now, n: (status if now < 60 else 200, headers))

    async def work() -> tuple[list[ChatReply | ChatError], float]:
        outcomes = await ask_all(model(server, limit=limit))
        return outcomes, asyncio.get_running_loop().time()

    outcomes, ended = run(work())

    assert [each for each in outcomes if isinstance(each, ChatError)] == []
    # The last pause may have begun just before the endpoint worked again.
    assert ended < 60 + 32 + UNITS
    # One request of everybody at first, then one for each pause: .5, 1, 2, 4, 8, 16 and 30 s.
    assert len([at for at in server.sent if at < 60]) <= limit + 20
    later = [at for at in server.sent if 2 < at < 60]
    assert all(after - before >= 0.4 for before, after in pairwise(later))


def test_patience_ends_for_everybody_at_once() -> None:
    """An endpoint that never answers costs the patience and no more, and the error says what it said last."""
    server = FakeEndpoint(lambda now, n: (503, {}))

    async def work() -> tuple[list[ChatReply | ChatError], float, ChatError, float, int]:
        client = model(server)
        outcomes = await ask_all(client)
        ended, sent = asyncio.get_running_loop().time(), len(server.sent)
        (late,) = await ask_all(client, 1)
        assert isinstance(late, ChatError)
        return outcomes, ended, late, asyncio.get_running_loop().time() - ended, len(server.sent) - sent

    outcomes, ended, late, took, asked = run(work())

    assert {each.code for each in outcomes if isinstance(each, ChatError)} == {"server_error"}
    assert len(outcomes) == UNITS
    assert "nothing was answered for 600 s" in str(outcomes[0])
    # The probe after the end of patience, and calls that waited for their own turn meanwhile.
    assert 600 <= ended <= 600 + 2 * 31
    assert len(server.sent) < 64 + 40
    # Whoever comes later tries once, after the pause.
    assert (late.code, asked) == ("server_error", 1)
    assert took <= 31


def test_an_endpoint_that_comes_back_after_patience_is_used_again() -> None:
    """Later calls find it."""
    server = FakeEndpoint(lambda now, n: (503 if now < 100 else 200, {}))

    async def work() -> list[ChatReply | ChatError]:
        client = model(server, patience=20)
        before = await ask_all(client)
        await asyncio.sleep(100)
        return [*before, *await ask_all(client)]

    outcomes = run(work())

    assert [isinstance(each, ChatReply) for each in outcomes] == [False] * UNITS + [True] * UNITS


def test_a_call_that_always_fails_ends_while_others_succeed() -> None:
    """Its attempts are bounded, and nobody else is held up by it."""
    poisoned = asyncio.Event()
    server = FakeEndpoint(lambda now, n: (500 if poisoned.is_set() else 200, {}), latency=0.0)

    async def work() -> tuple[ChatError, float]:
        client = model(server)

        async def others() -> None:
            while True:
                await asyncio.sleep(0.1)
                poisoned.clear()
                await client.complete(ask("other"))
                poisoned.set()

        poisoned.set()
        background = asyncio.create_task(others())
        with pytest.raises(ChatError) as caught:
            await client.complete(ask("poison"))
        background.cancel()
        return caught.value, asyncio.get_running_loop().time()

    error, ended = run(work())

    assert (error.code, error.attempts) == ("server_error", 6)
    assert ended < 30


@pytest.mark.parametrize("asked", ["0", "-1", "nan", "Thu, 01 Jan 2015 00:00:00 GMT", "soon"])
def test_no_retry_after_shortens_a_wait(asked: str) -> None:
    """The waits of one call grow whatever the endpoint says."""
    server = FakeEndpoint(lambda now, n: (429 if n < 4 else 200, {"retry-after": asked}))

    run(ask_once(server))
    waits = [after - before - 0.1 for before, after in pairwise(server.sent)]

    assert all(wait >= floor - 1e-6 for wait, floor in zip(waits, (0.25, 0.5, 1.0, 2.0), strict=True))


def test_waits_double_up_to_their_cap_with_seeded_jitter() -> None:
    """From the given generator: the same seed waits the same."""

    async def slept() -> list[float]:
        waits = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            await asyncio.sleep(seconds)

        server = FakeEndpoint(lambda now, n: (500, {}))
        endpoint = Endpoint("evaluated", "http://127.0.0.1:1", retry=RetryPolicy(first_wait=1, max_wait=4), patience=20)
        with pytest.raises(ChatError):
            await OpenAICompatible(endpoint, rng=random.Random(1), connect=server, sleep=sleep).complete(ask())
        return waits

    first, second = run(slept()), run(slept())

    assert first == second
    assert all(cap / 2 <= wait <= cap for wait, cap in zip(first, (1, 2, 4, 4, 4), strict=False))
    assert len(set(first)) == len(first) >= 5


@pytest.mark.parametrize("asked", ["1e9", "inf", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_no_retry_after_outlasts_patience(asked: str) -> None:
    """Whoever is asked to wait for ever waits as long as patience lasts, and asks once more."""
    server = FakeEndpoint(lambda now, n: (429 if now < 60 else 200, {"retry-after": asked}))

    async def work() -> tuple[list[ChatReply | ChatError], float]:
        return await ask_all(model(server)), asyncio.get_running_loop().time()

    outcomes, ended = run(work())

    assert all(isinstance(each, ChatReply) for each in outcomes)
    assert ended < 600 + 60 + 31


def test_a_retry_after_within_patience_is_kept() -> None:
    """The endpoint knows best how long it needs; nobody asks before."""
    server = FakeEndpoint(lambda now, n: (429 if now < 45 else 200, {"retry-after": f"{45 - now:.1f}"}))

    async def work() -> list[ChatReply | ChatError]:
        return await ask_all(model(server))

    assert all(isinstance(each, ChatReply) for each in run(work()))
    assert [at for at in server.sent if 1 < at < 44] == []


def test_waiting_ends_at_once_when_the_client_is_closed() -> None:
    """Whether a call waits for the circuit, for its own turn or for an answer."""
    server = FakeEndpoint(lambda now, n: (503, {}), latency=5)

    async def work() -> tuple[list[ChatReply | ChatError], float]:
        client = model(server, limit=8)
        calls = asyncio.create_task(ask_all(client))
        await asyncio.sleep(100)
        await client.aclose()
        return await calls, asyncio.get_running_loop().time()

    outcomes, ended = run(work())

    assert {each.code for each in outcomes if isinstance(each, ChatError)} == {"closed"}
    assert len(outcomes) == UNITS
    assert ended < 100.1


def test_waiting_for_the_endpoint_does_not_count_against_the_deadline() -> None:
    """A deadline of a second outlives an outage of a minute."""
    server = FakeEndpoint(lambda now, n: (503 if now < 60 else 200, {}))

    async def work() -> ChatReply:
        endpoint = Endpoint("evaluated", "http://127.0.0.1:1", timeout=2.0)
        return await OpenAICompatible(endpoint, rng=random.Random(1), connect=server).complete(ask())

    assert run(work()).text == "ok"


def test_a_probe_that_is_cancelled_is_passed_on() -> None:
    """Nobody waits for the outcome of a request that is never sent."""
    server = FakeEndpoint(lambda now, n: (503 if now < 10 else 200, {}), latency=1)

    async def work() -> ChatReply:
        client = model(server)
        calls = [asyncio.create_task(client.complete(ask(str(i)))) for i in range(6)]
        await asyncio.sleep(12)
        for call in calls[:5]:
            call.cancel()
            await asyncio.sleep(0)
        return await calls[5]

    assert run(work()).text == "ok"


def test_a_circuit_that_nobody_uses_is_closed() -> None:
    """Nothing is paused before something has failed."""
    circuit = Circuit(Endpoint("judge", "http://a.example", patience=1.0))

    assert (circuit.is_open, circuit.patience_left()) == (False, 1.0)
