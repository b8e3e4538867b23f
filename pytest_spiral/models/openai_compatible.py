"""A remote model behind an endpoint that speaks OpenAI's chat completions.

What is sent, what counts as an answer, what is tried again and for how long is decided here.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Protocol

from pydantic import BaseModel, ValidationError

from pytest_spiral.chat import ChatReply, ChatRequest, Role
from pytest_spiral.errors import ChatError
from pytest_spiral.models.attempt import AttemptError, HttpAnswer, refused
from pytest_spiral.models.budget import Budget
from pytest_spiral.models.call import Call
from pytest_spiral.models.circuit import Circuit, Turn
from pytest_spiral.models.completion import UnusableError, read_completion
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.models.limiter import Limiter, RequestSlot
from pytest_spiral.status import ReasonCode
from pytest_spiral.strict_json import json_bytes

# A conversation waits for its next turn, but nothing waits for a judgement: turns go first.
_PRIORITY: Mapping[Role, int] = {"evaluated": 0, "user": 0, "judge": 1, "reply_judge": 1}

_REMEDIES: Mapping[ReasonCode, str] = {
    ReasonCode.BAD_RESPONSE: "check that {} leads to an OpenAI-compatible API",
    ReasonCode.UNFINISHED: "the endpoint must say why each reply ended (stop, length, content_filter, ...)",
}
Sleep = Callable[[float], Awaitable[None]]


class Client(Protocol):
    """Connections to one endpoint."""

    async def request(self, path: str, content: bytes | None = None) -> HttpAnswer:
        """The answer to a POST of `content`, or to a GET without it. Raises `AttemptError`."""

    async def close(self) -> None:
        """Close all connections."""


class OpenAICompatible:
    """A chat model behind an OpenAI-compatible endpoint. Belongs to the event loop that first uses it.

    Args:
        circuit: Shared knowledge of whether this endpoint works.
        limiter: Shared bound on requests in flight to this endpoint.
        budget: Shared bound on what may be spent.
        total: Shared bound on requests in flight to all endpoints.
        rng: Source of the jitter between attempts.
        sleep: How to wait between attempts.
        connect: Makes the client, by default one over HTTP.
        split: Whether tagged thoughts are taken out of a reply's text.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        circuit: Circuit | None = None,
        limiter: Limiter | None = None,
        budget: Budget | None = None,
        total: Limiter | None = None,
        rng: random.Random | None = None,
        sleep: Sleep = asyncio.sleep,
        connect: Callable[[Endpoint], Client] | None = None,
        split: bool = True,
    ) -> None:
        self.endpoint = endpoint
        self._circuit = circuit or Circuit(endpoint)
        self._limiter = limiter
        self._budget = budget
        self._total = total
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._connect = connect or _http_client
        self._split = split
        self._client: Client | None = None
        # Closing ends them in this order, the one in which they began.
        self._calls: dict[asyncio.Timeout, None] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"OpenAICompatible({self.endpoint!r})"

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer `request`. Raises `ChatError`."""
        if self._closed:
            raise ChatError(ReasonCode.CLOSED, f"{self.endpoint.host}: the client is closed", attempts=0)
        call = Call(self.endpoint, self._circuit, self._rng)
        try:
            async with asyncio.timeout(None) as until_closed:
                self._calls[until_closed] = None
                while True:
                    try:
                        return await self._attempt(request, call)
                    except AttemptError as error:
                        wait = call.wait_after(error)
                    if wait is None:
                        break
                    await self._sleep(wait)
        except ChatError as error:
            # From the store, by the limiter or the budget: what was sent before counts all the same.
            error.attempts = max(call.attempts, 1)
            raise
        except TimeoutError:
            call.last = AttemptError(ReasonCode.CLOSED, "the client was closed during the call")
        finally:
            self._calls.pop(until_closed, None)
        # Raised out here, so that the caught exception is not chained to it.
        raise call.failed(request)

    async def aclose(self) -> None:
        """Release connections. Calls under way, also those that only wait, and later ones fail with code "closed"."""
        if not self._closed:
            self._closed = True
            for until_closed in self._calls:
                until_closed.reschedule(asyncio.get_running_loop().time())
        if self._client is not None:
            await self._client.close()

    async def _attempt(self, request: ChatRequest, call: Call) -> ChatReply:
        """One HTTP request, sent when the circuit, the limiters and the budget allow it."""
        while True:
            # The endpoint's slot first: a request to a throttled endpoint must not hold a slot that others could use.
            async with (
                self._circuit.turn() as turn,
                _slot(self._limiter, request.role) as slot,
                _slot(self._total, request.role),
            ):
                if not self._circuit.admits(turn):
                    continue
                path, content = self.endpoint.provider.path_of(request.model), _body(request)
                budget = self._budget
                async with nullcontext() if budget is None else budget.charge(request, len(content)) as charge:
                    try:
                        reply = await self._send(path, content, call)
                    except AttemptError as error:
                        if charge is not None and error.billed:
                            charge.lose()
                        self._note(error, turn, slot)
                        raise
                    self._circuit.answered()
                    if slot is not None:
                        slot.succeeded()
                    if charge is not None:
                        charge.settle(reply.usage)
                    return reply

    async def _send(self, path: str, content: bytes, call: Call) -> ChatReply:
        if self._client is None:
            self._client = self._connect(self.endpoint)
        endpoint, now = self.endpoint, asyncio.get_running_loop().time
        call.attempts += 1
        started = now()
        is_last = call.seconds_left <= endpoint.attempt_timeout
        try:
            async with asyncio.timeout(min(call.seconds_left, endpoint.attempt_timeout)):
                answer = await self._client.request(path, content)
            return replace(self._read(answer), seconds=now() - started, attempts=call.attempts)
        except TimeoutError:
            seconds = endpoint.timeout if is_last else endpoint.attempt_timeout
        finally:
            call.seconds_left -= now() - started
        message = f"no answer within {seconds:g} s"
        raise AttemptError(ReasonCode.TIMEOUT, message, again=not is_last, billed=True)

    def _note(self, error: AttemptError, turn: Turn, slot: RequestSlot | None) -> None:
        """Tell circuit and limiter of a failure."""
        if slot is not None and error.status in (429, 529) and error.code is not ReasonCode.QUOTA:
            slot.throttled()
        if error.again:
            self._circuit.failed(turn, error, lasting=not error.is_unusable)
        elif error.status is not None:
            # A final refusal is an answer: the endpoint works.
            self._circuit.answered()

    def _read(self, answer: HttpAnswer) -> ChatReply:
        try:
            return read_completion(answer.body, split=self._split)
        except UnusableError as error:
            if error.error is not None and error.status:
                failed = refused(self.endpoint, error.status, error.error, answer.headers)
            else:
                message = f"HTTP {answer.status} with {self.endpoint.clean(str(error))}"
                # An error object comes from such an API.
                remedy = _REMEDIES[error.code].format(self.endpoint.url_name) if error.error is None else ""
                failed = AttemptError(error.code, message, status=answer.status, again=True, billed=True, remedy=remedy)
        raise failed


def _slot(limiter: Limiter | None, role: Role) -> AbstractAsyncContextManager[RequestSlot | None]:
    return nullcontext() if limiter is None else limiter.slot(_PRIORITY[role])


def _http_client(endpoint: Endpoint) -> Client:
    try:
        from pytest_spiral.models.http_client import HttpClient

        return HttpClient(endpoint)
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        message = f"the HTTP client cannot be set up ({type(error).__name__}: {endpoint.clean(str(error))})"
    remedy = "check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, and that openai[aiohttp] is installed"
    raise AttemptError(ReasonCode.UNREACHABLE, message, remedy=remedy)


def _body(request: ChatRequest) -> bytes:
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    body = {**request.params, "model": request.model, "stream": False, "messages": messages}
    if request.schema is not None:
        # Keys stay in their order: models write an answer's keys in the order of the schema.
        schema = {"name": _schema_name(request.schema), "strict": True, "schema": dict(request.schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return json_bytes(body)


def _schema_name(schema: Mapping[str, object]) -> str:
    """The schema's title as OpenAI allows names: letters, digits, _ and -, at most 64."""
    title = schema.get("title")
    if not isinstance(title, str):
        return "answer"
    return re.sub(r"[^A-Za-z0-9_-]", "_", title)[:64] or "answer"


async def list_models(endpoint: Endpoint, *, timeout: float = 10.0) -> frozenset[str]:
    """The models that an endpoint lists, none where it keeps no list. Free of charge.

    Any answer but a refused key shows that a server is there.

    Raises:
        ChatError: Nothing answers ("unreachable", "timeout") or the key is refused ("auth").
    """
    provider = endpoint.provider
    if not provider.models_path:
        return frozenset()
    client: Client | None = None
    try:
        # Set up before the clock runs: a machine that imports slowly says nothing about the endpoint.
        client = _http_client(endpoint)
        async with asyncio.timeout(timeout):
            answer = await client.request(provider.models_path)
        names = _listed_models(answer.body) if provider.lists_models else frozenset()
        return frozenset(name.removeprefix(provider.models_prefix) for name in names)
    except AttemptError as error:
        failed = error
    except TimeoutError:
        remedy = f"check {endpoint.url_name} and that the server is running"
        failed = AttemptError(ReasonCode.TIMEOUT, f"no answer within {timeout:g} s", remedy=remedy)
    finally:
        if client is not None:
            await client.close()
    silent = failed.status is None and failed.code in (ReasonCode.UNREACHABLE, ReasonCode.TIMEOUT)
    if silent or failed.code is ReasonCode.AUTH:
        remedy = f": {failed.remedy}" if failed.remedy else ""
        raise ChatError(failed.code, f"{endpoint.host}: {failed.message}{remedy}", http_status=failed.status)
    return frozenset()


class _Listed(BaseModel):
    id: str


class _ModelList(BaseModel):
    data: tuple[_Listed, ...]


def _listed_models(body: bytes) -> frozenset[str]:
    """Ids of an endpoint's model list, none where it is no such list."""
    try:
        return frozenset(each.id for each in _ModelList.model_validate_json(body).data)
    except ValidationError:
        return frozenset()
