"""The remote model end to end, against a real server on loopback: what is sent, what is retried, what an error says."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import socket
import time
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any, Self

import pytest

from pytest_spiral.chat import ChatRequest, Message, Role, Usage
from pytest_spiral.errors import ChatError
from pytest_spiral.models.endpoint import Endpoint, RetryPolicy, Secret
from pytest_spiral.models.limiter import Limiter, PaceInMemory
from pytest_spiral.models.openai_compatible import OpenAICompatible, probe
from pytest_spiral.status import ReasonCode
from tests.fakes.openai_server import FakeOpenAI, Fault, Reply

pytestmark = pytest.mark.asyncio

Serve = Callable[..., FakeOpenAI]

KEY = "sk-proj-Zq8vR2mXw41LtY7cJd90"
FAST = RetryPolicy(first_wait=0.001, max_wait=0.004)
SCHEMA = {"title": "tempaffect output", "type": "object", "properties": {"a": {"type": "string"}}}


def ask(text: str = "hi", *, role: Role = "evaluated", schema: Any = None, **params: Any) -> ChatRequest:
    return ChatRequest(role, "some/model", (Message("system", "be kind"), Message("user", text)), params, schema)


class Talk:
    """A client for one server, and how it went."""

    def __init__(self, url: str, *, retry: RetryPolicy = FAST, limiter: Limiter | None = None, **endpoint: Any) -> None:
        self.slept: list[float] = []
        settings = {"timeout": 20.0, "attempt_timeout": 10.0, **endpoint}
        self.model = OpenAICompatible(
            Endpoint("evaluated", url, Secret(KEY), retry=retry, **settings),
            limiter=limiter,
            rng=random.Random(1),
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(min(seconds, 0.002))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.model.aclose()

    async def fails(self, request: ChatRequest | None = None) -> ChatError:
        with pytest.raises(ChatError) as caught:
            await self.model.complete(request or ask())
        return caught.value


async def test_a_request_is_sent_as_asked_and_its_reply_read(serve: Serve) -> None:
    """Model, messages and parameters as given; nothing else but `stream: false`."""
    server = serve(lambda body, n: "hello")
    async with Talk(server.base_url) as talk:
        reply = await talk.model.complete(ask("hi", temperature=0.0, provider={"order": ["a"]}))

    assert (reply.text, reply.finish, reply.model, reply.attempts) == ("hello", "stop", "some/model", 1)
    assert reply.usage == Usage(10, 4, 5)
    assert 0 < reply.seconds < 5
    assert server.requests[0].body == {
        "model": "some/model",
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
        "temperature": 0.0,
        "provider": {"order": ["a"]},
        "stream": False,
    }


async def test_a_schema_is_sent_as_strict_response_format(serve: Serve) -> None:
    """In OpenAI's form, under a name it allows."""
    server = serve(lambda body, n: '{"a": "b"}')
    async with Talk(server.base_url) as talk:
        await talk.model.complete(ask(schema=SCHEMA))

    assert list(server.requests[0].body["response_format"]["json_schema"]["schema"]) == list(SCHEMA)
    assert server.requests[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "tempaffect_output", "strict": True, "schema": SCHEMA},
    }


async def test_the_base_url_works_without_v1_and_under_other_paths(serve: Serve) -> None:
    """People paste both."""
    for server, url in (
        (plain := serve(), plain.origin),
        (plain, plain.base_url + "/"),
        (deep := serve(prefix="/openai/v1"), deep.base_url),
    ):
        async with Talk(url) as talk:
            assert (await talk.model.complete(ask())).text == "ok"
        assert server.requests


async def test_lone_surrogates_go_out_and_come_back(serve: Serve) -> None:
    """Models emit half characters; they are data, not a reason to crash."""
    server = serve(lambda body, n: "out \ud83d 😀")
    async with Talk(server.base_url) as talk:
        reply = await talk.model.complete(ask("in \ud800 é"))

    assert reply.text == "out \ud83d 😀"
    assert server.requests[0].body["messages"][1]["content"] == "in \ud800 é"
    assert b"\\ud800" in server.requests[0].raw


async def test_variables_meant_for_other_programs_change_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """No organisation, project, custom header, base URL or proxy slips in."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-x")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-x")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Leak: yes\nAuthorization: Bearer other")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = serve(key=KEY)
    async with Talk(server.base_url) as talk:
        await talk.model.complete(ask())

    names = set(server.requests[0].headers)
    assert not names & {"openai-organization", "openai-project", "x-leak"}


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_of_the_environment_is_used_and_does_not_get_the_key(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """It is sent to the endpoint alone; without TLS the proxy passes it on, but it is not shown to the proxy itself."""
    heads: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("ALL_PROXY", f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, Talk(f"{scheme}://example.test/v1", retry=RetryPolicy(max_attempts=1)) as talk:
        await talk.fails()

    (head,) = heads
    assert "example.test" in head
    assert "proxy-authorization" not in head.lower()
    assert (KEY in head) is (scheme == "http")


async def test_without_a_key_none_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local server needs none, and another program's key is not its business."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    server = serve(key="")
    model = OpenAICompatible(Endpoint("evaluated", server.base_url))
    reply = await model.complete(ask())
    await model.aclose()

    assert reply.text == "ok"


async def test_a_missing_key_is_explained(serve: Serve) -> None:
    """The message names the variable to set."""
    server = serve(key=KEY)
    model = OpenAICompatible(Endpoint("judge", server.base_url))
    with pytest.raises(ChatError, match="no key was sent: set JUDGE_API_KEY") as caught:
        await model.complete(ask(role="judge"))
    await model.aclose()

    assert caught.value.code == ReasonCode.AUTH


@pytest.mark.parametrize(
    ("reply", "text", "finish"),
    [
        (Reply.refused("No."), "No.", "refusal"),
        (Reply.cut("and then"), "and then", "length"),
        (Reply.filtered(), "", "content_filter"),
        (Reply(content=None), "", "stop"),
        (Reply(content=[{"type": "text", "text": "a"}]), "a", "stop"),
        (Reply(content="x", usage=None), "x", "stop"),
        (Reply.schema_ignored("Sure!"), "Sure!", "stop"),
        (Fault.wrong_content_type("ok"), "ok", "stop"),
    ],
)
async def test_odd_but_valid_replies_are_replies(serve: Serve, reply: Reply | Fault, text: str, finish: str) -> None:
    """They are the model's doing and are measured, not retried."""
    server = serve(lambda body, n: reply)
    async with Talk(server.base_url) as talk:
        answer = await talk.model.complete(ask(schema=SCHEMA))

    assert (answer.text, answer.finish, len(server.requests)) == (text, finish, 1)


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
        Fault.reset(),
        Fault.huge(3 * 2**20),
    ],
    ids=lambda fault: fault.name,
)
async def test_passing_faults_are_tried_again(serve: Serve, fault: Fault) -> None:
    """Two faults, then an answer: one reply of three attempts."""
    server = serve(lambda body, n: "ok" if n == 2 else fault)
    async with Talk(server.base_url, max_body=2**20) as talk:
        reply = await talk.model.complete(ask())

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
        (Fault.status_code(400, "'response_format' json_schema unsupported"), "bad_request", "strict JSON schemas"),
        (Fault.status_code(308, headers={"Location": "https://b.example/v1"}), "bad_request", "https://b.example/v1"),
        (Fault.error_in_200(401, "bad key"), "auth", "HTTP 401"),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else value.replace(" ", "-"),
)
async def test_final_refusals_are_not_tried_again(serve: Serve, fault: Fault, kind: str, says: str) -> None:
    """One request, one sentence with host, status, what the server said, and the remedy."""
    server = serve(lambda body, n: fault)
    async with Talk(server.base_url) as talk:
        error = await talk.fails(ask(schema=SCHEMA))

    assert (error.code, error.attempts, len(server.requests)) == (kind, 1, 1)
    assert says in str(error)
    assert str(error).startswith("127.0.0.1:")
    assert talk.slept == []


@pytest.mark.parametrize(
    ("fault", "kind", "attempts"),
    [
        (Fault.status_code(503, "busy"), "server_error", 4),
        (Fault.status_code(408), "timeout", 4),
        (Fault.status_code(429, "slow down"), "rate_limited", 7),
        (Fault.broken_json(), "bad_response", 2),
        (Fault.reset(), "unreachable", 4),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else None,
)
async def test_lasting_faults_end_after_their_number_of_attempts(
    serve: Serve, fault: Fault, kind: str, attempts: int
) -> None:
    """Each class has its own patience; the error counts every request made."""
    retry = RetryPolicy(max_attempts=4, max_rate_limited=7, max_bad_responses=2, first_wait=0.001, max_wait=0.002)
    server = serve(lambda body, n: fault)
    async with Talk(server.base_url, retry=retry) as talk:
        error = await talk.fails()

    assert (error.code, error.attempts, len(server.requests)) == (kind, attempts, attempts)
    assert f"after {attempts} attempts" in str(error)


async def test_rate_limits_do_not_use_up_the_attempts_of_other_faults(serve: Serve) -> None:
    """Ten 429s and three 500s are no reason to give up."""
    server = serve(lambda body, n: "ok" if n == 13 else Fault.status_code(500 if n % 4 == 3 else 429))
    async with Talk(server.base_url, retry=RetryPolicy(max_attempts=4, first_wait=0.001)) as talk:
        assert (await talk.model.complete(ask())).attempts == 14


async def test_backoff_doubles_up_to_its_cap_with_seeded_jitter(serve: Serve) -> None:
    """Full jitter from the given generator: the same seed waits the same."""
    runs = []
    for _ in range(2):
        server = serve(lambda body, n: Fault.status_code(500))
        async with Talk(server.base_url, retry=RetryPolicy(first_wait=1.0, max_wait=4.0)) as talk:
            await talk.fails()
        runs.append(talk.slept)

    assert runs[0] == runs[1]
    assert [wait <= cap for wait, cap in zip(runs[0], (1, 2, 4, 4, 4), strict=True)] == [True] * 5
    assert len(set(runs[0])) == 5


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
    async with Talk(server.base_url, retry=RetryPolicy(first_wait=30.0)) as talk:
        await talk.model.complete(ask())

    assert len(talk.slept) == 1
    assert 6.5 <= talk.slept[0] <= 8.9


async def test_a_retry_after_beyond_the_deadline_ends_the_call_at_once(serve: Serve) -> None:
    """Waiting would be in vain."""
    server = serve(lambda body, n: Fault.status_code(429, retry_after=3600))
    async with Talk(server.base_url) as talk:
        error = await talk.fails()

    assert (error.code, error.attempts, talk.slept) == ("rate_limited", 1, [])
    assert "asks to wait 3600 s" in str(error)


async def test_a_nonsense_retry_after_is_ignored(serve: Serve) -> None:
    """Backoff as if none was given."""
    nonsense = ["soon", "-5", "nan", "", "Thu, 99 Foo 2026 00:00:00 GMT"]
    server = serve(lambda body, n: Fault.status_code(429, retry_after=nonsense[n]) if n < len(nonsense) else "ok")
    async with Talk(server.base_url) as talk:
        await talk.model.complete(ask())

    assert all(0 <= wait <= 0.004 for wait in talk.slept)


async def test_the_deadline_holds_over_all_attempts(serve: Serve) -> None:
    """A server that hangs costs the deadline, not attempts times the timeout."""
    server = serve(lambda body, n: Fault.hang())
    async with Talk(server.base_url, timeout=0.7, attempt_timeout=0.2) as talk:
        await probe(talk.model.endpoint, "m")
        started = time.monotonic()
        error = await talk.fails()
        took = time.monotonic() - started

    assert error.code == ReasonCode.TIMEOUT
    # The deadline itself, or the last attempt where there is no time left to wait for another.
    assert re.search(r"no answer within 0\.[27] s", str(error))
    assert 1 <= error.attempts <= 4
    assert took < 2.5


async def test_a_slow_attempt_is_given_up_and_tried_again(serve: Serve) -> None:
    """One stuck connection does not cost the call."""
    server = serve(lambda body, n: Fault.hang() if n == 0 else "ok")
    async with Talk(server.base_url, attempt_timeout=0.3) as talk:
        reply = await talk.model.complete(ask())

    assert reply.attempts == 2


async def test_connection_refused_says_where_and_what_to_check() -> None:
    """Not "timed out", as the transport has it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with Talk(f"http://127.0.0.1:{port}", retry=RetryPolicy(max_attempts=2, first_wait=0.001)) as talk:
        error = await talk.fails()

    assert (error.code, error.attempts, error.http_status) == ("unreachable", 2, None)
    assert f"127.0.0.1:{port}: connection refused" in str(error)
    assert "EVALUATED_MODEL_BASE_URL" in str(error)


async def test_tls_against_a_plain_server_is_not_tried_again(serve: Serve) -> None:
    """It will not speak TLS the second time either."""
    server = serve()
    async with Talk(server.base_url.replace("http:", "https:")) as talk:
        error = await talk.fails()

    assert (error.code, error.attempts) == ("unreachable", 1)
    assert "TLS failed" in str(error)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.status_code(401, f"Incorrect API key provided: {KEY}"),
        Fault.status_code(500, f"upstream said no to {KEY[:15]}"),
        Fault.raw(f"<html><title>{KEY}</title>", status=400),
        Fault.error_in_200("x", f"key {KEY}"),
        Fault.reset(),
        Fault.hang(),
        Fault.broken_json(),
    ],
    ids=lambda fault: fault.name,
)
async def test_no_error_shows_the_key(serve: Serve, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the message, not in any chained exception, not in any local variable, not in the log."""
    caplog.set_level(logging.DEBUG)
    server = serve(lambda body, n: fault)
    async with Talk(server.base_url, attempt_timeout=0.2, retry=RetryPolicy(max_attempts=2, first_wait=0.001)) as talk:
        error = await talk.fails()

    shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    shown += repr(error) + repr(talk.model) + repr(vars(error)) + caplog.text
    # The faults themselves are locals of this test.
    shown = shown.replace(repr(fault), "")
    assert KEY not in shown
    assert KEY[:15] not in shown
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_a_hostile_message_becomes_one_clean_line(serve: Serve) -> None:
    """No escape sequences in the terminal, no page of text."""
    server = serve(lambda body, n: Fault.status_code(400, "\x1b[2J\r\nboo " + "very " * 500))
    async with Talk(server.base_url) as talk:
        error = await talk.fails()

    assert str(error).isprintable()
    assert len(str(error)) < 500


async def test_an_endless_error_body_is_not_read_to_its_end(serve: Serve) -> None:
    """The status says enough."""
    server = serve(lambda body, n: Fault.raw("x" * 30_000_000, status=400, content_type="text/plain"))
    async with Talk(server.base_url) as talk:
        error = await talk.fails()

    assert (error.code, error.http_status) == ("bad_request", 400)


async def test_a_body_beyond_the_bound_is_no_answer(serve: Serve) -> None:
    """A runaway endpoint cannot fill the memory."""
    server = serve(lambda body, n: Fault.huge(3 * 2**20))
    async with Talk(server.base_url, max_body=2**20) as talk:
        error = await talk.fails()

    assert (error.code, error.attempts) == ("bad_response", 3)
    assert "more than 1048576 bytes" in str(error)


async def test_the_limiter_bounds_what_is_in_flight(serve: Serve) -> None:
    """Seen by the server."""
    server = serve(latency=0.02)
    async with Talk(server.base_url, limiter=Limiter(4)) as talk:
        await asyncio.gather(*(talk.model.complete(ask(str(i))) for i in range(24)))

    assert server.peak == 4


async def test_without_a_limiter_the_transport_is_no_hidden_bound(serve: Serve) -> None:
    """The transport's own default would be 100."""
    server = serve(latency=1.0)
    async with Talk(server.base_url) as talk:
        await asyncio.gather(*(talk.model.complete(ask(str(i))) for i in range(150)))

    assert server.peak > 110


async def test_queueing_for_a_slot_does_not_count_against_the_deadline(serve: Serve) -> None:
    """Our own limit is not the endpoint's slowness."""
    server = serve(latency=0.15)
    async with Talk(server.base_url, limiter=Limiter(1), timeout=0.9) as talk:
        await probe(talk.model.endpoint, "m")
        replies = await asyncio.gather(*(talk.model.complete(ask(str(i))) for i in range(8)))

    assert {reply.attempts for reply in replies} == {1}


async def test_rate_limits_lower_what_is_in_flight(serve: Serve) -> None:
    """An endpoint that takes four at once is soon asked by about four at once, and everything is answered."""
    book = PaceInMemory()
    limiter = Limiter(32, "e", book=book)
    # Long enough for many to be in flight at once on a slow machine too.
    server = serve(latency=0.1)
    server.handler = lambda body, n: Fault.status_code(429) if server.in_flight > 4 else "ok"
    async with Talk(server.base_url, limiter=limiter) as talk:
        replies = await asyncio.gather(*(talk.model.complete(ask(str(i))) for i in range(80)))

    assert len(replies) == 80
    assert min(pace.most for pace in book.history["e"]) <= 4
    assert limiter.in_flight == 0


async def test_cancelling_a_call_frees_its_slot(serve: Serve) -> None:
    """A stopped run leaves nothing behind."""
    limiter = Limiter(1)
    server = serve(lambda body, n: Fault.hang() if n == 0 else "ok")
    async with Talk(server.base_url, limiter=limiter) as talk:
        task = asyncio.create_task(talk.model.complete(ask()))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert (await talk.model.complete(ask())).text == "ok"
    assert limiter.in_flight == 0


async def test_a_closed_client_says_so(serve: Serve) -> None:
    """Kind "closed" is how a stopping run is told from a broken endpoint."""
    server = serve()
    async with Talk(server.base_url) as talk:
        await talk.model.complete(ask())
    error = await talk.fails()

    assert (error.code, error.attempts) == ("closed", 0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("models", "listed"), [(("some/model",), True), (("other",), False), (404, None), (500, None)])
async def test_probing_finds_any_server_that_answers(serve: Serve, models: Any, listed: bool | None) -> None:
    """With or without a model list; nothing is asked of the model."""
    server = serve(models=models)
    found = await probe(Endpoint("judge", server.base_url), "some/model")

    assert found.listed is listed
    assert server.requests == []


async def test_probing_tells_a_refused_key_from_a_dead_endpoint(serve: Serve) -> None:
    """Both end the run before anything is scored, with different remedies."""
    server = serve(key=KEY)
    with pytest.raises(ChatError, match="JUDGE_API_KEY") as refused:
        await probe(Endpoint("judge", server.base_url, Secret("sk-wrong-wrong")), "m")
    with pytest.raises(ChatError, match="JUDGE_BASE_URL") as dead:
        await probe(Endpoint("judge", "http://127.0.0.1:9"), "m")

    assert (refused.value.code, dead.value.code) == ("auth", "unreachable")


async def test_probing_a_silent_server_ends(serve: Serve) -> None:
    """A port that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ChatError, match="no answer within") as caught:
            await probe(Endpoint("user", f"http://127.0.0.1:{port}"), "m", timeout=0.3)

    assert caught.value.code == ReasonCode.TIMEOUT
