"""What the remote model tries again, how long it waits and when it gives up."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from email.utils import formatdate

import pytest

from pytest_spiral.models.endpoint import RetryPolicy
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.models.openai_compatible import list_models
from pytest_spiral.status import ReasonCode
from pytest_spiral.store import RunStore
from tests.fakes.openai_server import Fault, Reply
from tests.models.client import SCHEMA, Client, Serve, ask

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    "fault",
    [
        Fault.status_code(408),
        Fault.status_code(409),
        Fault.status_code(429),
        Fault.status_code(500),
        Fault.status_code(502),
        Fault.status_code(503, retry_after=0),
        Fault.html(502),
        Fault.html(),
        Fault.broken_json(),
        Fault.empty_object(),
        Fault.empty_choices(),
        Fault.error_in_200(502),
        Fault.error_in_200("upstream"),
        Fault.error_beside_choices(),
        Fault.error_beside_choices(502),
        Fault.broken_chunks(),
        Fault.cut_short(),
        Fault.corrupt_gzip(),
        Fault.not_http(),
        Fault.reset(),
        Fault.huge(3 * 2**20),
    ],
    ids=lambda fault: fault.name,
)
async def test_passing_faults_are_tried_again(serve: Serve, fault: Fault) -> None:
    """Two faults, then an answer: one reply of three attempts."""
    server = serve(lambda body, n: "ok" if n == 2 else fault)
    async with Client(server.base_url, max_body=2**20) as client:
        reply = await client.model.complete(ask())

    assert (reply.text, reply.attempts, len(server.requests)) == ("ok", 3, 3)


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (Fault.status_code(400, "no such parameter"), "bad_request", "no such parameter"),
        (Fault.status_code(401, "bad key"), "auth", "EVALUATED_MODEL_API_KEY"),
        (Fault.status_code(402, "pay"), "quota", "add credit"),
        (Fault.status_code(403, "region"), "auth", "EVALUATED_MODEL_API_KEY"),
        (Fault.status_code(404, "no such model"), "bad_request", "check the model name and EVALUATED_MODEL_BASE_URL"),
        (Fault.status_code(413, "too big"), "bad_request", "too big"),
        (Fault.status_code(422, "odd"), "bad_request", "odd"),
        (Fault.status_code(429, "You exceeded", error_code="insufficient_quota"), "quota", "add credit"),
        (
            Fault.status_code(400, "long", error_code="context_length_exceeded"),
            "bad_request",
            "longer than the model's",
        ),
        (
            Fault.status_code(400, "Unknown field context_length_exceeded_behavior"),
            "bad_request",
            "check the model's parameters",
        ),
        (Fault.status_code(400, "'response_format' json_schema unsupported"), "bad_request", "strict JSON schemas"),
        (Fault.status_code(308, headers={"Location": "https://b.example/v1"}), "bad_request", "https://b.example/v1"),
        (Fault.error_in_200(401, "bad key"), "auth", "HTTP 401"),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else value.replace(" ", "-"),
)
async def test_final_refusals_are_not_tried_again(serve: Serve, fault: Fault, kind: str, says: str) -> None:
    """One request, one sentence with host, status, what the server said, and the remedy."""
    server = serve(lambda body, n: fault)
    async with Client(server.base_url) as client:
        error = await client.fails(ask(schema=SCHEMA))

    assert (error.code, error.attempts, len(server.requests)) == (kind, 1, 1)
    assert says in str(error)
    assert str(error).startswith("127.0.0.1:")
    assert client.slept == []


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.status_code(503, "busy"), "server_error"),
        (Fault.status_code(529, "busy"), "server_error"),
        (Fault.status_code(408), "timeout"),
        (Fault.status_code(429, "slow down"), "rate_limited"),
        (Fault.drop(), "unreachable"),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else None,
)
async def test_lasting_faults_end_with_patience(serve: Serve, fault: Fault, kind: str) -> None:
    """Where nothing is answered, the number of attempts decides nothing; the error counts every request made."""
    server = serve(lambda body, n: fault)
    async with Client(server.base_url, retry=RetryPolicy(2, 2, 2, first_wait=0.001, max_wait=0.02)) as client:
        error = await client.fails()

    assert (error.code, error.attempts) == (kind, len(server.requests))
    assert error.attempts >= 5
    assert f"after {error.attempts} attempts" in str(error)
    assert "nothing was answered for 0.2 s" in str(error)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Fault.broken_json(), "bad_response"),
        (Fault.broken_chunks(), "bad_response"),
        (Fault.cut_short(), "bad_response"),
        (Fault.corrupt_gzip(), "bad_response"),
        (Fault.not_http(), "bad_response"),
        (Fault.reset(), "bad_response"),
        (Reply("half a rep", finish=None), "unfinished"),
        (Reply("half a rep", finish="abort"), "unfinished"),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else str(getattr(value, "finish", value)),
)
async def test_unusable_answers_end_after_their_number_of_attempts(
    serve: Serve, answer: Fault | Reply, code: str
) -> None:
    """They are asked for again, but the endpoint is not paused for them: it answers."""
    server = serve(lambda body, n: answer)
    async with Client(server.base_url, retry=RetryPolicy(max_bad_responses=2, first_wait=0.001)) as client:
        error = await client.fails()

    assert (error.code, len(server.requests)) == (code, 2)
    # A connection that the server closes just when it is used again costs an attempt of which the server sees nothing.
    assert error.attempts in (2, 3)


async def test_rate_limits_do_not_use_up_the_attempts_of_other_faults(serve: Serve) -> None:
    """Ten 429s and three 500s are no reason to give up."""
    server = serve(lambda body, n: "ok" if n == 13 else Fault.status_code(500 if n % 4 == 3 else 429))
    async with Client(
        server.base_url, retry=RetryPolicy(max_attempts=4, first_wait=0.001, max_wait=0.01), patience=20
    ) as client:
        assert (await client.model.complete(ask())).attempts == 14


@pytest.mark.parametrize("where", ["seconds", "date", "milliseconds"])
async def test_retry_after_is_honoured(serve: Serve, where: str) -> None:
    """In seconds, as an HTTP date, in milliseconds; never earlier, hardly later."""

    def fault() -> Fault:
        if where == "milliseconds":
            return Fault.status_code(429, retry_after=99, headers={"retry-after-ms": "7500"})
        return Fault.status_code(
            429, retry_after="7.5" if where == "seconds" else formatdate(time.time() + 8, usegmt=True)
        )

    server = serve(lambda body, n: fault() if n == 0 else "ok")
    async with Client(server.base_url, retry=RetryPolicy(), patience=20.0) as client:
        await client.model.complete(ask())

    assert len(client.slept) == 1
    assert 6.5 <= client.slept[0] <= 8.9


async def test_a_nonsense_retry_after_is_ignored(serve: Serve) -> None:
    """Backoff as if none was given."""
    nonsense = ["soon", "-5", "nan", "", "Thu, 99 Foo 2026 00:00:00 GMT"]
    server = serve(lambda body, n: Fault.status_code(429, retry_after=nonsense[n]) if n < len(nonsense) else "ok")
    async with Client(server.base_url, patience=20) as client:
        await client.model.complete(ask())

    assert all(0 <= wait <= 0.004 for wait in client.slept)


async def test_the_deadline_holds_over_all_attempts(serve: Serve) -> None:
    """A server that hangs costs the deadline, not attempts times the timeout."""
    server = serve(lambda body, n: Fault.hang())
    async with Client(server.base_url, timeout=0.7, attempt_timeout=0.2, patience=20) as client:
        await list_models(client.model.endpoint)
        error = await client.fails()

    assert error.code == ReasonCode.TIMEOUT
    # The deadline itself, or the last attempt where there is no time left to wait for another.
    assert re.search(r"no answer within 0\.[27] s", str(error))
    # Each attempt costs its timeout: the deadline leaves room for three and a half.
    assert 1 <= error.attempts <= 4


async def test_a_call_that_runs_out_of_time_says_what_went_wrong_before(serve: Serve) -> None:
    """The endpoint's own words help more than the time."""
    server = serve(lambda body, n: Fault.status_code(503, "overloaded") if n < 2 else Fault.hang())
    async with Client(server.base_url, timeout=0.6, patience=20) as client:
        await list_models(client.model.endpoint)
        error = await client.fails()

    assert error.code == ReasonCode.TIMEOUT
    assert "no answer within 0.6 s after 3 attempts, before that: HTTP 503 (overloaded)" in str(error)


async def test_an_error_in_a_200_is_no_reason_to_doubt_the_address(serve: Serve) -> None:
    """Only an OpenAI-compatible API sends one."""
    server = serve(lambda body, n: Fault.error_in_200("upstream", "provider failed"))
    async with Client(server.base_url, retry=RetryPolicy(max_bad_responses=1)) as client:
        error = await client.fails()

    assert str(error).endswith("HTTP 200 with an error in it (provider failed)")


async def test_a_slow_attempt_is_given_up_and_tried_again(serve: Serve) -> None:
    """One stuck connection does not cost the call."""
    server = serve(lambda body, n: Fault.hang() if n == 0 else "ok")
    async with Client(server.base_url, attempt_timeout=0.3) as client:
        reply = await client.model.complete(ask())

    assert reply.attempts == 2


async def test_connection_refused_says_where_and_what_to_check() -> None:
    """Not "timed out", as the transport has it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}") as client:
        error = await client.fails()

    assert (error.code, error.http_status) == ("unreachable", None)
    assert error.attempts > 1
    assert f"127.0.0.1:{port}: connection refused" in str(error)
    assert "EVALUATED_MODEL_BASE_URL" in str(error)


async def test_tls_against_a_plain_server_is_not_tried_again(serve: Serve) -> None:
    """It will not speak TLS the second time either."""
    server = serve()
    async with Client(server.base_url.replace("http:", "https:")) as client:
        error = await client.fails()

    assert (error.code, error.attempts) == ("unreachable", 1)
    assert "TLS failed" in str(error)


async def test_an_endless_error_body_is_not_read_to_its_end(serve: Serve) -> None:
    """The status says enough."""
    server = serve(lambda body, n: Fault.raw("x" * 30_000_000, status=400, content_type="text/plain"))
    async with Client(server.base_url) as client:
        error = await client.fails()

    assert (error.code, error.http_status) == ("bad_request", 400)


async def test_a_body_beyond_the_bound_is_no_answer(serve: Serve) -> None:
    """A runaway endpoint cannot fill the memory."""
    server = serve(lambda body, n: Fault.huge(3 * 2**20))
    async with Client(server.base_url, max_body=2**20) as client:
        error = await client.fails()

    assert (error.code, error.attempts) == ("bad_response", 3)
    assert "more than 1048576 bytes" in str(error)


async def test_the_limiter_bounds_what_is_in_flight(serve: Serve) -> None:
    """Seen by the server."""
    server = serve(latency=0.02, together=4)
    async with Client(server.base_url, limiter=Limiter(4)) as client:
        await asyncio.gather(*(client.model.complete(ask(str(i))) for i in range(24)))

    assert server.peak == 4


async def test_without_a_limiter_the_transport_is_no_hidden_bound(serve: Serve) -> None:
    """The transport's own default would be 100."""
    server = serve(together=150)
    async with Client(server.base_url, timeout=60, attempt_timeout=60) as client:
        await asyncio.gather(*(client.model.complete(ask(str(i))) for i in range(150)))

    assert server.peak == 150


async def test_queueing_for_a_slot_does_not_count_against_the_deadline(serve: Serve) -> None:
    """Our own limit is not the endpoint's slowness."""
    server = serve(latency=0.15)
    async with Client(server.base_url, limiter=Limiter(1), timeout=0.9) as client:
        await list_models(client.model.endpoint)
        replies = await asyncio.gather(*(client.model.complete(ask(str(i))) for i in range(8)))

    assert {reply.attempts for reply in replies} == {1}


async def test_rate_limits_lower_what_is_in_flight(serve: Serve, book: RunStore) -> None:
    """An endpoint that takes four at once is soon asked by about four at once, and everything is answered."""
    limiter = Limiter(32, "e", book=book)
    # Long enough for many to be in flight at once on a slow machine too.
    server = serve(latency=0.1)
    server.handler = lambda body, n: Fault.status_code(429) if server.in_flight > 4 else "ok"
    async with Client(server.base_url, limiter=limiter, patience=20) as client:
        replies = await asyncio.gather(*(client.model.complete(ask(str(i))) for i in range(80)))

    assert len(replies) == 80
    assert min(pace.most for pace in book.paces()["e"]) <= 4
    assert limiter.in_flight == 0
