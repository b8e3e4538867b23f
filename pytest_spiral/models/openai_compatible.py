"""A remote model behind an endpoint that speaks OpenAI's chat completions.

What is sent, what counts as an answer, what is tried again and for how long is decided here.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import BaseModel, ValidationError

from pytest_spiral.chat import ChatReply, ChatRequest, Role
from pytest_spiral.errors import ChatError
from pytest_spiral.models.attempt import Answer, AttemptError, refused
from pytest_spiral.models.budget import Budget, Charge
from pytest_spiral.models.completion import Completion, MalformedError, RefusedInBodyError, read_completion, read_error
from pytest_spiral.models.endpoint import Endpoint, env_name
from pytest_spiral.models.limiter import Limiter, Slot
from pytest_spiral.status import ReasonCode

# A conversation waits for its next turn, but nothing waits for a judgement: turns go first.
_PRIORITY: Mapping[Role, int] = {"evaluated": 0, "user": 0, "judge": 1}
# Full jitter doubles from `first_wait`; beyond 2**60 a float would overflow, and every cap has long been reached.
_MAX_DOUBLINGS = 60
# After a Retry-After, waits are spread over this share of it: all requests in flight were told the same time.
_SPREAD = 0.1

Sleep = Callable[[float], Awaitable[None]]


class Client(Protocol):
    """Connections to one endpoint."""

    async def request(self, path: str, content: bytes | None = None) -> Answer:
        """The answer to a POST of `content`, or to a GET without it. Raises `AttemptError`."""

    async def close(self) -> None:
        """Close all connections."""


class OpenAICompatible:
    """A chat model behind an OpenAI-compatible endpoint. Belongs to the event loop that first uses it.

    Args:
        limiter: Shared bound on requests in flight to this endpoint.
        budget: Shared bound on what may be spent.
        total: Shared bound on requests in flight to all endpoints.
        rng: Source of the jitter between attempts.
        sleep: How to wait between attempts.
        connect: Makes the client, by default one over HTTP.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limiter: Limiter | None = None,
        budget: Budget | None = None,
        total: Limiter | None = None,
        rng: random.Random | None = None,
        sleep: Sleep = asyncio.sleep,
        connect: Callable[[Endpoint], Client] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._limiter = limiter
        self._budget = budget
        self._total = total
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._connect = connect or _http_client
        self._client: Client | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"OpenAICompatible({self.endpoint!r})"

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer `request`. Raises `ChatError`."""
        call = _Call(self.endpoint, self._rng)
        try:
            async with asyncio.timeout(None) as call.timeout:
                while True:
                    try:
                        return await self._attempt(request, call)
                    except AttemptError as error:
                        wait = call.wait_after(error)
                    if wait is None:
                        failed = call.failed()
                        break
                    await self._sleep(wait)
        except TimeoutError:
            failed = call.out_of_time()
        # Raised out here, so that the caught exception is not chained to it.
        raise failed

    async def aclose(self) -> None:
        """Release connections. Later calls fail with code "closed"."""
        self._closed = True
        if self._client is not None:
            await self._client.close()

    async def _attempt(self, request: ChatRequest, call: _Call) -> ChatReply:
        """One HTTP request, sent when the limiters and the budget allow it."""
        # Waiting for them does not count against the deadline: it is not the endpoint's doing.
        call.pause()
        # The endpoint's slot first: a request to a throttled endpoint must not hold a slot that others could use.
        async with _slot(self._limiter, request.role) as slot, _slot(self._total, request.role):
            content = _body(request)
            budget = self._budget
            async with nullcontext() if budget is None else budget.charge(request, len(content)) as charge:
                call.resume()
                return await self._send(content, call, slot, charge)

    async def _send(self, content: bytes, call: _Call, slot: Slot | None, charge: Charge | None) -> ChatReply:
        if self._closed:
            raise AttemptError(ReasonCode.CLOSED, "the client is closed")
        if self._client is None:
            self._client = self._connect(self.endpoint)
        call.attempts += 1
        started = time.perf_counter()
        try:
            completion = self._read(await self._client.request("/chat/completions", content))
        except AttemptError as error:
            if slot is not None and error.status in (429, 529) and error.code is not ReasonCode.QUOTA:
                slot.throttled()
            if charge is not None and error.billed:
                charge.lose()
            if self._closed:
                raise AttemptError(ReasonCode.CLOSED, "the client was closed during the request") from None
            raise
        if slot is not None:
            slot.succeeded()
        if charge is not None:
            charge.settle(completion.usage)
        return ChatReply(
            text=completion.text,
            finish=completion.finish,
            model=completion.model,
            usage=completion.usage,
            seconds=time.perf_counter() - started,
            attempts=call.attempts,
            reasoning=completion.reasoning,
        )

    def _read(self, answer: Answer) -> Completion:
        try:
            return read_completion(answer.body, answer.content_type)
        except MalformedError as error:
            failed = AttemptError(
                ReasonCode.BAD_RESPONSE,
                f"HTTP {answer.status} with {error}",
                status=answer.status,
                again=True,
                billed=True,
                remedy=f"check that {env_name(self.endpoint.role, 'BASE_URL')} leads to an OpenAI-compatible API",
            )
        except RefusedInBodyError as error:
            body = read_error(error.body)
            if error.status is not None:
                failed = refused(self.endpoint, error.status, body, answer.headers)
            else:
                message = f"HTTP {answer.status} with an error in it ({self.endpoint.clean(body.message)})"
                failed = AttemptError(ReasonCode.BAD_RESPONSE, message, status=answer.status, again=True)
        raise failed


@dataclass
class _Call:
    """The attempts of one call: how many were made, whether to make another, and how long to wait before it."""

    endpoint: Endpoint
    rng: random.Random
    attempts: int = 0
    last: AttemptError | None = None
    timeout: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    _seconds_left: float = field(init=False)
    _counts: Counter[ReasonCode] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._seconds_left = self.endpoint.timeout

    def pause(self) -> None:
        """Stop the deadline's clock."""
        when = self.timeout.when()
        if when is not None:
            self._seconds_left = when - asyncio.get_running_loop().time()
            self.timeout.reschedule(None)

    def resume(self) -> None:
        """Let the deadline's clock run."""
        self.timeout.reschedule(asyncio.get_running_loop().time() + self._seconds_left)

    def wait_after(self, error: AttemptError) -> float | None:
        """Seconds to wait before another attempt, None to make none.

        Each class of failure has its own patience, and what would end after the deadline is not begun.
        """
        self.last = error
        self._counts[error.code] += 1
        policy, total, limited = self.endpoint.retry, self._counts.total(), self._counts[ReasonCode.RATE_LIMITED]
        doubled = policy.first_wait * 2 ** min(total - 1, _MAX_DOUBLINGS)
        wait = self.rng.uniform(0, min(policy.max_wait, doubled))
        if error.retry_after is not None:
            wait = error.retry_after + min(wait, _SPREAD * error.retry_after)
        when = self.timeout.when()
        if (
            not error.again
            or limited >= policy.max_rate_limited
            or self._counts[ReasonCode.BAD_RESPONSE] >= policy.max_bad_responses
            or total - limited >= policy.max_attempts
            or (when is not None and wait >= when - asyncio.get_running_loop().time())
        ):
            return None
        return wait

    def failed(self) -> ChatError:
        """The error of a call whose last attempt failed."""
        last = self.last
        assert last is not None
        wait = f", it asks to wait {last.retry_after:.0f} s" if last.retry_after else ""
        remedy = f": {last.remedy}" if last.remedy else ""
        message = f"{self.endpoint.host}: {last.message}{self._after}{wait}{remedy}"
        return ChatError(last.code, message, attempts=self.attempts, http_status=last.status)

    def out_of_time(self) -> ChatError:
        """The error of a call whose deadline has passed."""
        if self.last is not None and self.last.code is ReasonCode.RATE_LIMITED:
            return self.failed()
        before = f", before that: {self.last.message}" if self.last else ""
        message = f"{self.endpoint.host}: no answer within {self.endpoint.timeout:g} s{self._after}{before}"
        return ChatError(ReasonCode.TIMEOUT, message, attempts=max(self.attempts, 1))

    @property
    def _after(self) -> str:
        return f" after {self.attempts} attempts" if self.attempts > 1 else ""


def _slot(limiter: Limiter | None, role: Role) -> AbstractAsyncContextManager[Slot | None]:
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
    # ASCII with escapes, because lone surrogates have no UTF-8 form.
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")


def _schema_name(schema: Mapping[str, object]) -> str:
    """The schema's title as OpenAI allows names: letters, digits, _ and -, at most 64."""
    title = schema.get("title")
    if not isinstance(title, str):
        return "answer"
    return re.sub(r"[^A-Za-z0-9_-]", "_", title)[:64] or "answer"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a reachability check found.

    Attributes:
        listed: Whether the endpoint lists the model, None if it keeps no list.
    """

    status: int
    listed: bool | None


async def probe(endpoint: Endpoint, model: str, *, timeout: float = 10.0) -> Probe:
    """Ask for the model list, before anything that is scored or paid for.

    Any answer but a refused key shows that a server is there: not all keep a model list.

    Raises:
        ChatError: Nothing answers ("unreachable", "timeout") or the key is refused ("auth").
    """
    client: Client | None = None
    try:
        # Set up before the clock runs: a machine that imports slowly says nothing about the endpoint.
        client = _http_client(endpoint)
        async with asyncio.timeout(timeout):
            answer = await client.request("/models")
        names = _listed_models(answer.body)
        return Probe(answer.status, model in names if names else None)
    except AttemptError as error:
        failed = error
    except TimeoutError:
        remedy = f"check {env_name(endpoint.role, 'BASE_URL')} and that the server is running"
        failed = AttemptError(ReasonCode.TIMEOUT, f"no answer within {timeout:g} s", remedy=remedy)
    finally:
        if client is not None:
            await client.close()
    silent = failed.status is None and failed.code in (ReasonCode.UNREACHABLE, ReasonCode.TIMEOUT)
    if silent or failed.code is ReasonCode.AUTH:
        remedy = f": {failed.remedy}" if failed.remedy else ""
        raise ChatError(failed.code, f"{endpoint.host}: {failed.message}{remedy}", http_status=failed.status)
    return Probe(failed.status or 200, None)


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
