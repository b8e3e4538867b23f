"""The hard limit on cost: never overspent, whatever turns out how, over processes and sessions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.chat import ChatRequest, Message, TokenUsage
from pytest_spiral.errors import ChatError
from pytest_spiral.models.budget import Budget, Ledger, worst_case
from pytest_spiral.models.endpoint import Endpoint, RetryPolicy, Secret
from pytest_spiral.models.openai_compatible import OpenAICompatible
from pytest_spiral.models.parameters import Price
from pytest_spiral.status import ReasonCode
from tests.fakes.openai_server import FakeOpenAI, Fault, Reply

Serve = Callable[..., FakeOpenAI]

# One prompt token or one completion token is one dollar.
PRICE = Price(input=1_000_000, output=1_000_000)
REQUEST = ChatRequest("evaluated", "m", (Message("user", "hi"),), {"max_tokens": 5})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """The accounts of an empty run."""
    made = Ledger(tmp_path / "run.sqlite")
    made.begin(0.0)
    yield made
    made.close()


def budget(ledger: Ledger, limit: float) -> Budget:
    return Budget(ledger, limit, {("evaluated", "m"): PRICE})


def client(server: FakeOpenAI, ledger: Ledger, limit: float) -> OpenAICompatible:
    retry = RetryPolicy(first_wait=0.001, max_wait=0.002)
    endpoint = Endpoint("evaluated", server.base_url, Secret(), retry=retry, patience=0.01)
    return OpenAICompatible(endpoint, budget=budget(ledger, limit))


def test_the_worst_case_is_every_byte_a_token_and_the_reply_full() -> None:
    """The dearer of cached and fresh prompt tokens counts."""
    assert worst_case(Price(input=2, output=8, cached_input=1), REQUEST, 1000) == (1000 * 2 + 5 * 8) / 1_000_000
    assert worst_case(Price(input=1, output=0, cached_input=3), REQUEST, 1000) == 3000 / 1_000_000


@pytest.mark.parametrize("value", ["0", "-7", "'text'", "1e300"])
def test_a_damaged_account_never_forgets_what_replies_cost(tmp_path: Path, ledger: Ledger, value: str) -> None:
    """Accounts have no checksum: a wrong one can stop a run too early, but what was stored and paid for counts."""
    ledger.reserve(5.0, 100.0)
    ledger.settle(5.0, spent=5.0)
    with sqlite3.connect(tmp_path / "run.sqlite") as other:
        other.execute(f"UPDATE spending SET spent = {value}")

    ledger.begin(5.0)

    assert ledger.totals()[0] >= 5.0
    assert not ledger.reserve(1.0, 5.5)


def test_a_call_waits_for_others_to_turn_out_cheaper(ledger: Ledger) -> None:
    """Room for one worst case at a time is room for many calls one after another, and the last cent is usable."""
    accounts = budget(ledger, 25.0)
    spent = []

    async def call() -> None:
        async with accounts.charge(REQUEST, 10) as charge:
            await asyncio.sleep(0)
            assert charge is not None
            charge.settle(TokenUsage(1, 0, 1))
            spent.append(ledger.totals()[0])

    async def all_of_them() -> list[BaseException | None]:
        return await asyncio.gather(*(call() for _ in range(20)), return_exceptions=True)

    results = asyncio.run(all_of_them())

    # 5 calls may follow at 15 reserved each: at 10 spent one more fits exactly, at 12 none does.
    assert sum(result is None for result in results) == 6
    assert {error.code for error in results if isinstance(error, ChatError)} == {ReasonCode.BUDGET}
    assert ledger.totals() == (12.0, 0.0)


@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 5), st.booleans()), max_size=30), st.integers(1, 200))
def test_the_limit_holds(outcomes: list[tuple[int, int, bool]], limit: int) -> None:
    """Whatever calls turn out to cost, and however many are lost, the sum stays within the limit."""
    ledger = Ledger(Path(":memory:"))
    ledger.begin(0.0)
    accounts = budget(ledger, float(limit))

    async def call(prompt: int, completion: int, lost: bool) -> None:
        async with accounts.charge(REQUEST, 10) as charge:
            await asyncio.sleep(0)
            assert charge is not None
            assert sum(ledger.totals()) <= limit
            charge.lose() if lost else charge.settle(TokenUsage(prompt, 0, completion))

    async def everything() -> None:
        await asyncio.gather(*(call(*outcome) for outcome in outcomes), return_exceptions=True)

    asyncio.run(everything())

    assert sum(ledger.totals()) <= limit
    ledger.close()


def test_what_a_dead_process_had_in_flight_counts_at_its_worst(tmp_path: Path) -> None:
    """Its reservation stays, also for the next session; replies from before accounts were kept count as well."""
    path = tmp_path / "run.sqlite"
    dead = Ledger(path)
    dead.begin(3.0)
    assert dead.reserve(15.0, 100.0)

    resumed = Ledger(path)
    resumed.begin(3.0)

    assert resumed.totals() == (3.0, 15.0)
    assert not resumed.reserve(15.0, 32.9)
    assert resumed.reserve(15.0, 33.0)


def test_two_processes_cannot_take_the_same_dollar(tmp_path: Path) -> None:
    """Each sees what the other has reserved."""
    path = tmp_path / "run.sqlite"
    one, other = Ledger(path), Ledger(path)

    assert one.reserve(15.0, 20.0)
    assert not other.reserve(15.0, 20.0)
    one.settle(15.0, spent=2.0)
    assert other.reserve(15.0, 20.0)


def test_a_process_whose_attempts_have_ended_is_not_waited_for(tmp_path: Path) -> None:
    """Amounts are no whole numbers: what is left of 0.1 + 0.2 - 0.1 - 0.2 would keep the others waiting for ever."""
    path = tmp_path / "run.sqlite"
    one, other = Ledger(path), Ledger(path)
    for amount in (0.1, 0.2):
        assert one.reserve(amount, 1.0)
    assert other.others_at_work()

    for amount in (0.1, 0.2):
        one.settle(amount, spent=amount)

    assert not other.others_at_work()


@pytest.mark.parametrize(
    ("answer", "charged"),
    [
        (Reply(usage={"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}), (15.0, 0.0)),
        (Reply(usage=None), (0.0, "worst")),
        (Fault.status_code(400), (0.0, 0.0)),
        (Fault.reset(), (0.0, "worst")),
    ],
    ids=["counted", "uncounted", "refused", "lost"],
)
@pytest.mark.asyncio
async def test_what_an_attempt_is_charged(
    serve: Serve, ledger: Ledger, answer: Reply | Fault, charged: tuple[float | str, float | str]
) -> None:
    """What the endpoint counted; nothing for a refusal; the worst case where nobody can tell."""
    server = serve(lambda body, n: answer)
    model = client(server, ledger, 10_000.0)

    try:
        await model.complete(REQUEST)
    except ChatError as error:
        attempts = error.attempts
    else:
        attempts = 1
    await model.aclose()

    worst = attempts * worst_case(PRICE, REQUEST, len(server.requests[0].raw))
    assert ledger.totals() == tuple(worst if part == "worst" else part for part in charged)


@pytest.mark.asyncio
async def test_nothing_is_sent_beyond_the_limit(serve: Serve, ledger: Ledger) -> None:
    """Refused before it is sent, with the remedy; and from then on everything is."""
    server = serve()
    model = client(server, ledger, 1.0)

    for _ in range(2):
        with pytest.raises(ChatError, match=r"budget of 1 USD is used up.*higher --max-cost") as caught:
            await model.complete(REQUEST)
        assert caught.value.code == ReasonCode.BUDGET
    await model.aclose()

    assert server.requests == []


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.asyncio
async def test_a_call_that_waits_for_money_can_be_cancelled_at_any_moment(ledger: Ledger, steps: int) -> None:
    """Also as there is money again: a run that ends must not send one more request and wait for its answer."""
    accounts, answered = budget(ledger, 20.0), asyncio.Event()

    async def first() -> None:
        async with accounts.charge(REQUEST, 10) as charge:
            await answered.wait()
            assert charge is not None
            charge.settle(TokenUsage(1, 0, 0))

    async def second() -> None:
        async with accounts.charge(REQUEST, 10):
            await asyncio.Event().wait()

    calls = [asyncio.create_task(first()), asyncio.create_task(second())]
    for _ in range(5):
        await asyncio.sleep(0)
    answered.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    calls[1].cancel()
    _, left = await asyncio.wait(calls, timeout=1)
    for call in left:
        call.cancel()

    assert not left


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell zombies apart")
def test_a_killed_process_is_not_waited_for_though_nobody_has_taken_note_of_its_end(tmp_path: Path) -> None:
    """xdist takes note of the end of its workers when the session ends, which would wait for the reservation."""
    path = tmp_path / "run.sqlite"
    ledger = Ledger(path)
    ledger.begin(0.0)
    script = "import os, pathlib, sys; from pytest_spiral.models.budget import Ledger; "
    script += "Ledger(pathlib.Path(sys.argv[1])).reserve(1.0, 9.0); print(flush=True); os.kill(os.getpid(), 9)"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as dead:
        assert dead.stdout is not None
        dead.stdout.read()
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        waits = ledger.others_at_work()
    ledger.close()

    assert not waits
