"""The remote model end to end, against a real server on loopback: what is sent, what is retried, what an error says."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from typing import Any

import pytest

from pytest_spiral.chat import TokenUsage
from pytest_spiral.errors import ChatError
from pytest_spiral.models.endpoint import Endpoint, RetryPolicy, Secret
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.models.openai_compatible import OpenAICompatible, list_models
from pytest_spiral.status import ReasonCode
from tests.fakes.openai_server import Fault, Reply
from tests.models.client import KEY, SCHEMA, Client, Serve, ask

pytestmark = pytest.mark.asyncio


async def test_a_request_is_sent_as_asked_and_its_reply_read(serve: Serve) -> None:
    """Model, messages and parameters as given; nothing else but `stream: false`."""
    server = serve(lambda body, n: "hello")
    async with Client(server.base_url) as client:
        reply = await client.model.complete(ask("hi", temperature=0.0, provider={"order": ["a"]}))

    assert (reply.text, reply.finish, reply.model, reply.attempts) == ("hello", "stop", "some/model", 1)
    assert reply.usage == TokenUsage(10, 4, 5)
    assert reply.seconds > 0
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
    async with Client(server.base_url) as client:
        await client.model.complete(ask(schema=SCHEMA))

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
        async with Client(url) as client:
            assert (await client.model.complete(ask())).text == "ok"
        assert server.requests


async def test_lone_surrogates_go_out_and_come_back(serve: Serve) -> None:
    """Models emit half characters; they are data, not a reason to crash."""
    server = serve(lambda body, n: "out \ud83d 😀")
    async with Client(server.base_url) as client:
        reply = await client.model.complete(ask("in \ud800 é"))

    assert reply.text == "out \ud83d 😀"
    assert server.requests[0].body["messages"][1]["content"] == "in \ud800 é"
    assert b"\\ud800" in server.requests[0].raw


async def test_variables_meant_for_other_programs_change_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """No organisation, project, custom header, base URL or proxy slips in."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-x")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-x")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Leak: yes\nAuthorization: Bearer other\ncontent-type: text/plain")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = serve(key=KEY)
    async with Client(server.base_url) as client:
        await client.model.complete(ask())

    headers = server.requests[0].headers
    assert not headers.keys() & {"openai-organization", "openai-project", "x-leak"}
    assert headers["content-type"] == headers["accept"] == "application/json"
    assert headers["user-agent"] == "pytest-spiral"


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
    async with server, Client(f"{scheme}://example.test/v1", retry=RetryPolicy(max_attempts=1)) as client:
        await client.fails()

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
    with pytest.raises(ChatError, match=r"no key was sent: .* JUDGE_API_KEY=") as caught:
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
    async with Client(server.base_url) as client:
        answer = await client.model.complete(ask(schema=SCHEMA))

    assert (answer.text, answer.finish, len(server.requests)) == (text, finish, 1)


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
        # Seven characters alone are not recognised as a part of it.
        Fault.raw("x" * 53 + KEY, name="key-after-text"),
    ],
    ids=lambda fault: fault.name,
)
async def test_no_error_shows_the_key(serve: Serve, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the message, not in any chained exception, not in any local variable, not in the log."""
    caplog.set_level(logging.DEBUG)
    server = serve(lambda body, n: fault)
    async with Client(
        server.base_url, attempt_timeout=0.2, retry=RetryPolicy(max_attempts=2, first_wait=0.001)
    ) as client:
        error = await client.fails()

    shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    shown += repr(error) + repr(client.model) + repr(vars(error)) + caplog.text
    # The faults themselves are locals of this test.
    shown = shown.replace(repr(fault), "")
    assert KEY not in shown
    assert KEY[:15] not in shown
    assert KEY[:5] not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None


async def test_a_hostile_message_becomes_one_clean_line(serve: Serve) -> None:
    """No escape sequences in the terminal, no page of text."""
    server = serve(lambda body, n: Fault.status_code(400, "\x1b[2J\r\nboo " + "very " * 500))
    async with Client(server.base_url) as client:
        error = await client.fails()

    assert str(error).isprintable()
    assert len(str(error)) < 500


async def test_cancelling_a_call_frees_its_slot(serve: Serve) -> None:
    """A stopped run leaves nothing behind."""
    limiter = Limiter(1)
    server = serve(lambda body, n: Fault.hang() if n == 0 else "ok")
    async with Client(server.base_url, limiter=limiter) as client:
        task = asyncio.create_task(client.model.complete(ask()))
        while not server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert (await client.model.complete(ask())).text == "ok"
    assert limiter.in_flight == 0


async def test_a_closed_client_says_so(serve: Serve) -> None:
    """Kind "closed" is how a stopping run is told from a broken endpoint."""
    server = serve()
    async with Client(server.base_url) as client:
        await client.model.complete(ask())
    error = await client.fails()

    assert (error.code, error.attempts) == ("closed", 0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("models", "listed"), [(("a", "b"), {"a", "b"}), (404, set()), (500, set())])
async def test_listing_finds_any_server_that_answers(serve: Serve, models: Any, listed: set[str]) -> None:
    """With or without a model list; nothing is asked of the model."""
    server = serve(models=models)

    assert await list_models(Endpoint("judge", server.base_url)) == listed
    assert server.requests == []


async def test_listing_tells_a_refused_key_from_a_dead_endpoint(serve: Serve) -> None:
    """Both end the run before anything is scored, with different remedies."""
    server = serve(key=KEY)
    with pytest.raises(ChatError, match="JUDGE_API_KEY") as refused:
        await list_models(Endpoint("judge", server.base_url, Secret("sk-wrong-wrong")))
    with pytest.raises(ChatError, match="JUDGE_BASE_URL") as dead:
        await list_models(Endpoint("judge", "http://127.0.0.1:9"))

    assert (refused.value.code, dead.value.code) == ("auth", "unreachable")


async def test_listing_a_silent_server_ends(serve: Serve) -> None:
    """A port that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ChatError, match="no answer within") as caught:
            await list_models(Endpoint("user", f"http://127.0.0.1:{port}"), timeout=0.3)

    assert caught.value.code == ReasonCode.TIMEOUT
