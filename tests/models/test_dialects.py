"""Six providers' forms of requests and errors, against emulations of them: the preset alone makes them understood."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pytest_spiral.errors import ChatError
from pytest_spiral.models.environment import endpoint_settings, load_environment
from pytest_spiral.models.openai_compatible import OpenAICompatible, list_models
from pytest_spiral.models.parameters import resolve_parameters
from pytest_spiral.models.providers import providers
from pytest_spiral.status import ReasonCode
from tests.fakes.dialects import DIALECTS, Dialect, Headers, OpenAI
from tests.fakes.openai_server import FakeOpenAI, Fault
from tests.models.client import FAST, KEY, SCHEMA, Serve, ask

pytestmark = pytest.mark.asyncio


class Watching(OpenAI):
    """Notes what each request brings as authorization."""

    def __init__(self, sent: list[list[str]]) -> None:
        self.sent = sent

    def key_of(self, headers: Headers) -> str | None:
        self.sent.append([value for name, value in headers.items() if name.lower() == "authorization"])
        return None


FAULTS = [(name, error) for name, kind in DIALECTS.items() for error in kind().errors]


def fault(dialect: Dialect, name: str) -> Fault:
    status, body, headers = dialect.errors[name]
    return Fault("answer", status, json.dumps(body).encode(), headers=dict(headers), name=name)


@asynccontextmanager
async def model(server: FakeOpenAI, name: str, folder: Path, key: str = KEY) -> AsyncIterator[OpenAICompatible]:
    """A client that knows the provider's name, the server's host and a key, from spiral.toml and .env."""
    preset = providers()[name]
    (folder / "spiral.toml").write_text(f'[[default]]\nprovider = "{name}"\nbase_url = "{server.origin}"\n')
    (folder / ".env").write_text(f"{preset.key_variable}={key}\n" if key else "")
    environ = load_environment({}, folder)
    connection = resolve_parameters("some/model", "evaluated", folder / "spiral.toml").connection
    endpoint = endpoint_settings("evaluated", environ, connection).endpoint("evaluated", environ, patience=5.0)
    object.__setattr__(endpoint, "retry", FAST)
    client = OpenAICompatible(endpoint, rng=random.Random(1))
    try:
        yield client
    finally:
        await client.aclose()


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_request_reaches_the_provider(serve: Serve, tmp_path: Path, name: str) -> None:
    """Path, key and parameters of the address in the provider's form, from its name and the host alone."""
    server = serve(lambda body, n: "hello", dialect=DIALECTS[name](), key=KEY)

    async with model(server, name, tmp_path) as client:
        reply = await client.complete(ask(schema=SCHEMA))
        await list_models(client.endpoint)

    assert (reply.text, reply.finish, reply.attempts) == ("hello", "stop", 1)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 5)
    assert KEY not in f"{server.requests[0].headers} {server.requests[0].path}"


@pytest.mark.parametrize("key", ["sk-proj-wrongwrongwrong", ""])
@pytest.mark.parametrize("name", DIALECTS)
async def test_a_refused_key_is_told_as_such(serve: Serve, tmp_path: Path, name: str, key: str) -> None:
    """Whatever the status: the message names the variable of the key and does not repeat it."""
    server = serve(dialect=DIALECTS[name](), key=KEY)

    async with model(server, name, tmp_path, key) as client:
        with pytest.raises(ChatError, match=providers()[name].key_variable) as caught:
            await client.complete(ask())

    assert (caught.value.code, caught.value.attempts) == (ReasonCode.AUTH, 1)
    assert key not in str(caught.value) or not key


@pytest.mark.parametrize("name", DIALECTS)
async def test_an_unknown_model_ends_at_once(serve: Serve, tmp_path: Path, name: str) -> None:
    """A refused request with the remedy, after one attempt."""
    dialect = DIALECTS[name]()
    dialect.serves = ("others",)
    server = serve(dialect=dialect, key=KEY)

    async with model(server, name, tmp_path) as client:
        with pytest.raises(ChatError, match=r"model name|base URL|no model of this name") as caught:
            await client.complete(ask())

    assert (caught.value.code, caught.value.attempts) == (ReasonCode.BAD_REQUEST, 1)


@pytest.mark.parametrize(("name", "error"), FAULTS)
async def test_errors_mean_what_the_provider_means(serve: Serve, tmp_path: Path, name: str, error: str) -> None:
    """Limits and overload are waited out; an empty account, a filtered prompt and a wrong request are not."""
    dialect = DIALECTS[name]()
    server = serve(lambda body, n: fault(dialect, error) if n == 0 else "ok", dialect=dialect, key=KEY)
    meant = ReasonCode(error.partition(" (")[0])

    async with model(server, name, tmp_path) as client:
        if meant in (ReasonCode.RATE_LIMITED, ReasonCode.SERVER_ERROR):
            assert (await client.complete(ask())).attempts == 2
        else:
            with pytest.raises(ChatError) as caught:
                await client.complete(ask())
            assert (caught.value.code, caught.value.attempts) == (meant, 1)


async def test_what_the_provider_behind_a_router_said_is_told(serve: Serve, tmp_path: Path) -> None:
    """Not only that it returned an error."""
    dialect = DIALECTS["openrouter"]()
    server = serve(lambda body, n: fault(dialect, "rate_limited"), dialect=dialect, key=KEY)

    async with model(server, "openrouter", tmp_path) as client:
        with pytest.raises(ChatError, match="temporarily rate-limited upstream"):
            await client.complete(ask())


async def test_a_provider_may_be_asked_for_no_list(serve: Serve, tmp_path: Path) -> None:
    """Anthropic's list wants another form of key: its 401 would say that the key is wrong."""
    server = serve(dialect=DIALECTS["anthropic"](), key=KEY)

    async with model(server, "anthropic", tmp_path) as client:
        assert await list_models(client.endpoint) == frozenset()

    assert server.probes == 0


@pytest.mark.parametrize(("name", "listed"), [("azure-classic", []), ("gemini", ["gemini-2.5-flash", "some/model"])])
async def test_lists_name_what_requests_name(serve: Serve, tmp_path: Path, name: str, listed: list[str]) -> None:
    """Azure lists what could be deployed, which says nothing; Google puts a word before each name."""
    server = serve(dialect=DIALECTS[name](), key=KEY)

    async with model(server, name, tmp_path) as client:
        assert sorted(await list_models(client.endpoint)) == listed

    assert server.probes == 1


async def test_headers_and_query_of_the_table_are_sent(serve: Serve, tmp_path: Path) -> None:
    """To the list of models, too; the table's own version replaces the preset's."""
    server = serve(lambda body, n: "hello", dialect=DIALECTS["azure-classic"](), key=KEY)
    (tmp_path / "spiral.toml").write_text(
        f'[[default]]\nprovider = "azure-classic"\nbase_url = "{server.origin}"\n'
        'headers = { X-Team = "a", X-Token = { env = "TOKEN", prefix = "Basic " } }\nquery.api-version = "2025-01-01"\n'
    )
    (tmp_path / ".env").write_text(f"AZURE_OPENAI_API_KEY={KEY}\nTOKEN=of-mine\n")
    environ = load_environment({}, tmp_path)
    connection = resolve_parameters("m", "evaluated", tmp_path / "spiral.toml").connection
    client = OpenAICompatible(endpoint_settings("evaluated", environ, connection).endpoint("evaluated", environ))

    await client.complete(ask())
    await client.aclose()

    (request,) = server.requests
    assert request.path == "/openai/deployments/some%2Fmodel/chat/completions?api-version=2025-01-01"
    assert (request.headers["x-team"], request.headers["x-token"]) == ("a", "Basic of-mine")


@pytest.mark.parametrize("name", ["Authorization", "authorization"])
async def test_a_header_of_the_table_replaces_the_keys(serve: Serve, tmp_path: Path, name: str) -> None:
    """Gateways want other schemes than Bearer; one header of the name is sent, in whatever case."""
    sent: list[list[str]] = []
    server = serve(dialect=Watching(sent))
    (tmp_path / "spiral.toml").write_text(
        f'[[default]]\nprovider = "openai"\nbase_url = "{server.origin}"\n'
        f'headers.{name} = {{ env = "TOKEN", prefix = "Basic " }}\n'
    )
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY={KEY}\nTOKEN=of-mine\n")
    environ = load_environment({}, tmp_path)
    connection = resolve_parameters("m", "evaluated", tmp_path / "spiral.toml").connection
    client = OpenAICompatible(endpoint_settings("evaluated", environ, connection).endpoint("evaluated", environ))

    await client.complete(ask())
    await client.aclose()

    assert sent == [["Basic of-mine"]]


async def test_the_emulated_providers_are_those_that_say_so() -> None:
    """The pages of the others say that nothing was tried."""
    assert {name for name, preset in providers().items() if preset.emulated} == set(DIALECTS)
