"""The one way to a remote model: any endpoint that speaks OpenAI's chat completions.

The official client's HTTP transport carries the requests; what is sent, what counts as an answer, what is tried again
and how long is decided here. No error leaves this room with a key in it or with the client's exceptions chained to it:
those hold the request and its headers.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import os
import random
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from pytest_spiral.chat.budget import Budget, Charge
from pytest_spiral.chat.completion import (
    Completion,
    ErrorBody,
    MalformedError,
    RefusedInBodyError,
    read_completion,
    read_error,
)
from pytest_spiral.chat.endpoint import Endpoint, RetryPolicy, env_name
from pytest_spiral.chat.limits import Limiter, Slot
from pytest_spiral.errors import ChatError, ChatErrorKind
from pytest_spiral.records import ChatReply, ChatRequest, Role, Schema, as_json

if TYPE_CHECKING:
    import httpx2

__all__ = ["OpenAICompatible", "Probe", "probe"]

# Error bodies are quoted in 300 characters; a proxy's error page is no reason to read megabytes.
_MAX_ERROR_BODY = 64 * 2**10
# Conversations wait for their next turn, nobody waits for a chunk judge: turns go first.
_PRIORITY: dict[Role, int] = {"evaluated": 0, "user": 0, "judge": 1}
_CONNECT_TIMEOUT = 10.0

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Answer:
    """One HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")


class _AttemptError(Exception):
    """One attempt that failed. says: a clause for the message. retry_after: seconds the endpoint asks for.

    billed: whether the endpoint may have answered, and charged for it, all the same.
    """

    def __init__(
        self,
        kind: ChatErrorKind,
        says: str,
        *,
        status: int | None = None,
        again: bool = False,
        retry_after: float | None = None,
        remedy: str = "",
        billed: bool = False,
    ) -> None:
        super().__init__(says)
        self.kind: ChatErrorKind = kind
        self.says = says
        self.status = status
        self.again = again
        self.retry_after = retry_after
        self.remedy = remedy
        self.billed = billed


class _TooLargeError(Exception):
    """A body beyond its limit."""


class _Connection:
    """HTTP to one endpoint: client set-up, one request, and what its failure means."""

    def __init__(self, endpoint: Endpoint, connections: int) -> None:
        self.endpoint = endpoint
        self._connections = connections
        self._client: httpx2.AsyncClient | None = None
        # Parsed once a path: taking an address apart costs as much as sending a request.
        self._urls: dict[str, httpx2.URL] = {}

    def open(self) -> None:
        """Set the client up, which takes a moment: it imports openai and reads certificate bundles."""
        if self._client is None:
            try:
                self._client = _make_client(self.endpoint, self._connections)
            except (ImportError, ValueError, OSError) as error:
                says = f"the HTTP client cannot be set up ({type(error).__name__}: {self.endpoint.clean(str(error))})"
            else:
                return
            remedy = "check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, and that openai[aiohttp] is installed"
            raise _AttemptError("unreachable", says, remedy=remedy)

    async def send(self, method: str, path: str, content: bytes | None = None) -> _Answer:
        """The answer with a status below 300. Raises `_AttemptError`."""
        self.open()
        failed: _AttemptError | None = None
        try:
            async with asyncio.timeout(self.endpoint.attempt_timeout):
                answer = await self._exchange(method, path, content)
        except TimeoutError:
            says = f"no answer within {self.endpoint.attempt_timeout:g} s"
            failed = _AttemptError("timeout", says, again=True, billed=True)
        except _TooLargeError:
            says = f"an answer of more than {self.endpoint.max_body} bytes"
            failed = _AttemptError("bad_response", says, again=True, billed=True)
        except Exception as error:  # whatever three HTTP layers raise, and it may hold the key
            failed = self._unreachable(error)
        # Raised out here, so that no exception holding the request's headers is chained to it.
        if failed is not None:
            raise failed
        if answer.status >= 300:
            raise self.refused(answer.status, read_error(answer.body, answer.content_type), answer.headers)
        return answer

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _exchange(self, method: str, path: str, content: bytes | None) -> _Answer:
        assert self._client is not None
        request = self._request(method, path, content)
        # Streamed, so that the body can be bounded.
        response = await self._client.send(request, stream=True)
        try:
            body = await self._body(response)
        finally:
            await response.aclose()
        return _Answer(response.status_code, _lower(response.headers), body)

    def _request(self, method: str, path: str, content: bytes | None) -> httpx2.Request:
        # Not by the client, which merges parameters, cookies and headers that no request has.
        import httpx2

        assert self._client is not None
        if path not in self._urls:
            self._urls[path] = httpx2.URL(self.endpoint.base_url + path)
        return httpx2.Request(method, self._urls[path], headers=self._client.headers, content=content)

    async def _body(self, response: httpx2.Response) -> bytes:
        limit = self.endpoint.max_body if response.is_success else _MAX_ERROR_BODY
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limit:
                    break
        except Exception:  # whatever three layers raise: an error's status says enough, a broken body must not hide it
            if response.is_success:
                raise
        if len(body) > limit and response.is_success:
            raise _TooLargeError
        return bytes(body[:limit])

    def refused(self, status: int, error: ErrorBody, headers: Mapping[str, str]) -> _AttemptError:
        """What an error status means. 1xx to 3xx count as a wrong address."""
        message = self.endpoint.clean(error.message)
        says = f"HTTP {status}" + (f" ({message})" if message else "")
        role = self.endpoint.role
        key, url = env_name(role, "API_KEY"), env_name(role, "BASE_URL")
        if status in (401, 403):
            had = "check the key in" if self.endpoint.api_key else "no key was sent: set"
            return _AttemptError("auth", says, status=status, remedy=f"{had} {key}")
        if status == 402 or (status == 429 and _is_quota(error)):
            return _AttemptError("quota", says, status=status, remedy=f"add credit for the account of {key}")
        wait = _retry_after(headers)
        if status == 429:
            remedy = "lower --concurrency or raise the account's rate limit"
            return _AttemptError("rate_limited", says, status=status, again=True, retry_after=wait, remedy=remedy)
        if status >= 500 or status in (408, 409):
            kind: ChatErrorKind = "timeout" if status == 408 else "server_error"
            return _AttemptError(kind, says, status=status, again=True, retry_after=wait)
        if status in (400, 422) and _names_schema(error):
            remedy = (
                "this endpoint does not take strict JSON schemas (response_format json_schema); "
                "use one that does, or plain prompting (--prompting raw)"
            )
        elif "context_length" in error.code or "context_size" in error.code:
            remedy = "the messages are longer than the model's context; use a model with a longer one"
        elif status in (404, 405):
            remedy = f"check the model name and {url}"
        elif status < 400:
            target = self.endpoint.clean(headers.get("location", "").split("?")[0], limit=120)
            remedy = f"it redirects{f' to {target}' if target else ''}; set {url} to the final address"
        else:
            remedy = "check the model's parameters in spiral.toml"
        return _AttemptError("bad_request", says, status=status, remedy=remedy)

    def _unreachable(self, error: Exception) -> _AttemptError:
        remedy = f"check {env_name(self.endpoint.role, 'BASE_URL')} and that the server is running"
        chain = list(_chain(error))
        for cause in chain:
            name = type(cause).__name__
            if isinstance(cause, ssl.SSLError) or "Certificate" in name or "SSL" in name:
                return _AttemptError("unreachable", f"TLS failed ({self.endpoint.clean(str(cause))})", remedy=remedy)
            if "DNS" in name:
                return _AttemptError("unreachable", "host name not found", again=True, remedy=remedy)
            if isinstance(cause, ConnectionRefusedError):
                return _AttemptError("unreachable", "connection refused", again=True, remedy=remedy)
        for cause in chain:
            name = type(cause).__name__
            if isinstance(cause, ConnectionResetError | BrokenPipeError) or "Disconnected" in name or "Payload" in name:
                says = "connection lost before the answer was complete"
                return _AttemptError("unreachable", says, again=True, billed=True)
            if isinstance(cause, TimeoutError):
                return _AttemptError(
                    "timeout", f"no connection within {_CONNECT_TIMEOUT:g} s", again=True, remedy=remedy
                )
        root = chain[-1]
        says = f"{type(root).__name__}: {root}" if str(root) else type(root).__name__
        known = isinstance(root, OSError) or type(error).__name__ in ("APIConnectionError", "APITimeoutError")
        return _AttemptError("unreachable", self.endpoint.clean(says), again=known, remedy=remedy, billed=True)


def _lower(headers: httpx2.Headers) -> dict[str, str]:
    # From the raw pairs: the mapping's own iteration guesses an encoding for every name and value.
    return {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in headers.raw}


def _make_client(endpoint: Endpoint, connections: int) -> httpx2.AsyncClient:
    """The HTTP client that openai's own client runs on. Its typed layers above cost as much again per call, and walk
    the whole history in Python; retries, deadlines and what an error means are decided here anyway."""
    import httpx2
    from openai import DefaultAioHttpClient

    headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": "pytest-spiral"}
    if endpoint.api_key:
        # A local server gets no key at all rather than a made-up one.
        headers["Authorization"] = f"Bearer {endpoint.api_key.reveal()}"
    # Proxies and certificate bundles of the environment are right for the outside world; a proxy cannot reach this
    # machine's loopback.
    trust_env = not endpoint.is_loopback
    return DefaultAioHttpClient(
        headers=headers,
        trust_env=trust_env,
        verify=_certificates(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        # None would silently mean aiohttp's 100.
        limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
        # The deadlines are ours; the client's pool timeout would count the time spent connecting.
        timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT),
        follow_redirects=False,
    )


@lru_cache(maxsize=4)
def _certificates(trust_env: bool, _file: str | None, _folder: str | None) -> ssl.SSLContext:
    """What TLS trusts. Read once a process: it takes longer than a request, and every role has a client of its own."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=trust_env)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "os_error", None)
        if isinstance(inner, BaseException) and id(inner) not in seen:
            seen.add(id(inner))
            yield inner
        current = current.__cause__ or current.__context__


def _is_quota(error: ErrorBody) -> bool:
    said = f"{error.code} {error.message.lower()}"
    return any(mark in said for mark in ("insufficient_quota", "billing_hard_limit", "exceeded your current quota"))


def _names_schema(error: ErrorBody) -> bool:
    said = f"{error.code} {error.message.lower()}"
    return any(mark in said for mark in ("response_format", "json_schema", "structured output"))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the endpoint asks to wait: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
    try:
        return _seconds(float(headers["retry-after-ms"]) / 1000)
    except (KeyError, ValueError):
        pass
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return _seconds(float(value))
    except ValueError:
        pass
    try:
        return _seconds(email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _seconds(value: float) -> float | None:
    return None if math.isnan(value) else max(0.0, value)


class OpenAICompatible:
    """A chat model behind an OpenAI-compatible endpoint. Belongs to the event loop that first uses it.

    limiter: shared bound on requests in flight; without one, `connections` is the only bound.
    budget: shared bound on what may be spent; None for none.
    total: bound on requests in flight over all endpoints.
    rng: source of the backoff's jitter. sleep: how a backoff waits.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limiter: Limiter | None = None,
        budget: Budget | None = None,
        total: Limiter | None = None,
        connections: int = 64,
        rng: random.Random | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._limiter = limiter
        self._budget = budget
        self._total = total
        self._connection = _Connection(endpoint, max(connections, limiter.maximum if limiter else 1))
        self._rng = rng or random.Random()
        self._sleep = sleep
        self._closed = False

    def __repr__(self) -> str:
        return f"OpenAICompatible({self.endpoint!r})"

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer `request`. Raises `ChatError`."""
        call = _Call(self.endpoint.retry, self._rng)
        try:
            # Set by each attempt when it is admitted.
            async with asyncio.timeout(None) as deadline:
                return await self._with_retries(request, call, deadline)
        except _AttemptError as failed:
            call.last = failed
        except TimeoutError:
            call.out_of_time = True
        raise self._error(call)

    async def _with_retries(self, request: ChatRequest, call: _Call, deadline: asyncio.Timeout) -> ChatReply:
        # The first attempt stands before the retry loop, which costs a call that needs none a tenth of its time.
        failed: _AttemptError | None = None
        try:
            return await self._once(request, call, deadline)
        except _AttemptError as error:
            failed = error
        async for attempt in call.retrying(self._sleep, deadline):
            with attempt:
                if failed is not None:
                    first, failed = failed, None
                    raise first
                return await self._once(request, call, deadline)
        raise AssertionError("the retry loop ends with a reply or an error")

    async def _once(self, request: ChatRequest, call: _Call, deadline: asyncio.Timeout) -> ChatReply:
        """One attempt, when it may be made. That wait does not count against the deadline: it is not the endpoint's
        doing. The body is made after it: hundreds of calls may wait."""
        loop = asyncio.get_running_loop()
        when = deadline.when()
        left = self.endpoint.timeout if when is None else when - loop.time()
        if when is not None:
            deadline.reschedule(None)
        # The endpoint's slot first: one that is throttled must not hold what others could use.
        async with _slot(self._limiter, request.role) as slot, _slot(self._total, request.role):
            content = _encode(request)
            async with self._charge(request, len(content)) as charge:
                deadline.reschedule(loop.time() + left)
                return await self._attempt(content, call, slot, charge)

    def _charge(self, request: ChatRequest, body_bytes: int) -> AbstractAsyncContextManager[Charge | None]:
        return nullcontext() if self._budget is None else self._budget.charge(request, body_bytes)

    async def aclose(self) -> None:
        """Release connections. Later calls fail with kind "closed"."""
        self._closed = True
        await self._connection.close()

    async def _attempt(self, content: bytes, call: _Call, slot: Slot | None, charge: Charge | None) -> ChatReply:
        if self._closed:
            raise _AttemptError("closed", "the client is closed")
        self._connection.open()
        call.attempts += 1
        started = time.perf_counter()
        try:
            answer = await self._connection.send("POST", "/chat/completions", content)
            completion = self._read(answer)
        except _AttemptError as failed:
            if slot is not None and failed.status in (429, 529) and failed.kind != "quota":
                slot.throttled()
            if charge is not None and failed.billed:
                charge.vanished()
            if self._closed:
                raise _AttemptError("closed", "the client was closed during the request") from None
            raise
        if slot is not None:
            slot.succeeded()
        if charge is not None:
            charge.answered(completion.usage)
        seconds = time.perf_counter() - started
        return ChatReply(
            text=completion.text,
            finish=completion.finish,
            model=completion.model,
            usage=completion.usage,
            seconds=seconds,
            attempts=call.attempts,
        )

    def _read(self, answer: _Answer) -> Completion:
        failed: _AttemptError
        try:
            return read_completion(answer.body, answer.content_type)
        except MalformedError as error:
            failed = _AttemptError(
                "bad_response",
                f"HTTP {answer.status} with {error}",
                status=answer.status,
                again=True,
                billed=True,
                remedy=f"check that {env_name(self.endpoint.role, 'BASE_URL')} leads to an OpenAI-compatible API",
            )
        except RefusedInBodyError as error:
            said = read_error(error.body)
            if error.status is not None:
                failed = self._connection.refused(error.status, said, answer.headers)
            else:
                says = f"HTTP {answer.status} with an error in it ({self.endpoint.clean(said.message)})"
                failed = _AttemptError("bad_response", says, status=answer.status, again=True)
        raise failed

    def _error(self, call: _Call) -> ChatError:
        last, attempts = call.last, call.attempts
        after = f" after {attempts} attempts" if attempts > 1 else ""
        if call.out_of_time and (last is None or last.kind != "rate_limited"):
            before = f", before that: {last.says}" if last else ""
            says = f"no answer within {self.endpoint.timeout:g} s{after}{before}"
            return ChatError("timeout", f"{self.endpoint.host}: {says}", attempts=max(attempts, 1))
        assert last is not None
        wait = f", it asks to wait {last.retry_after:.0f} s" if last.retry_after else ""
        remedy = f": {last.remedy}" if last.remedy else ""
        message = f"{self.endpoint.host}: {last.says}{after}{wait}{remedy}"
        return ChatError(last.kind, message, attempts=attempts, status=last.status)


class _Call:
    """The retry loop of one call and its counts."""

    def __init__(self, policy: RetryPolicy, rng: random.Random) -> None:
        self.attempts = 0
        self.last: _AttemptError | None = None
        self.out_of_time = False
        self._policy = policy
        self._rng = rng
        self._counts: Counter[str] = Counter()

    def retrying(self, sleep: Sleep, deadline: asyncio.Timeout) -> AsyncRetrying:
        """Attempts until one succeeds or none is left; raises the last `_AttemptError`."""

        def stop(state: RetryCallState) -> bool:
            when = deadline.when()
            left = when - asyncio.get_running_loop().time() if when is not None else float("inf")
            return self._spent() or state.upcoming_sleep >= left

        return AsyncRetrying(
            sleep=sleep, wait=self._wait, stop=stop, retry=retry_if_exception(self._again), reraise=True
        )

    def _again(self, error: BaseException) -> bool:
        if not isinstance(error, _AttemptError):
            return False
        self.last = error
        self._counts[error.kind] += 1
        return error.again

    def _spent(self) -> bool:
        limited, policy = self._counts["rate_limited"], self._policy
        return (
            limited >= policy.max_rate_limited
            or self._counts["bad_response"] >= policy.max_bad_responses
            or self._counts.total() - limited >= policy.max_attempts
        )

    def _wait(self, state: RetryCallState) -> float:
        policy = self._policy
        # Beyond 2**60 floats would overflow, and every cap has long been reached.
        drawn = self._rng.uniform(0, min(policy.max_wait, policy.first_wait * 2 ** min(state.attempt_number - 1, 60)))
        asked = self.last.retry_after if self.last else None
        # A little later than asked, spread out: everybody in flight was asked to come back at the same moment.
        return drawn if asked is None else asked + min(drawn, 0.1 * asked)


def _slot(limiter: Limiter | None, role: Role) -> AbstractAsyncContextManager[Slot | None]:
    return nullcontext() if limiter is None else limiter.slot(_PRIORITY[role])


def _encode(request: ChatRequest) -> bytes:
    # Put together from texts that were written before: a history grows, and is sent again with every turn.
    parts = [as_json({**request.params, "model": request.model, "stream": False})[:-1], ',"messages":[']
    parts += [",".join([message.json for message in request.messages]), "]"]
    if request.schema is not None:
        named = as_json({"name": _schema_name(request.schema), "strict": True})[:-1]
        schema = Schema.of(request.schema).json
        parts += [f',"response_format":{{"type":"json_schema","json_schema":{named},"schema":{schema}}}}}']
    return "".join([*parts, "}"]).encode("ascii")


def _schema_name(schema: Mapping[str, Any]) -> str:
    """The schema's title as OpenAI allows names: letters, digits, _ and -, at most 64."""
    title = schema.get("title")
    name = (
        "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in title)
        if isinstance(title, str)
        else ""
    )
    return name[:64] or "answer"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a reachability check learned. listed: whether the endpoint lists the model, None if it keeps no list."""

    status: int
    listed: bool | None


async def probe(endpoint: Endpoint, model: str, *, timeout: float = 10.0) -> Probe:
    """Ask for the model list, before anything that is scored or paid for.

    Raises `ChatError` where nothing answers ("unreachable", "timeout") or the key is refused ("auth"). Any other
    answer shows that a server is there: not all keep a model list.
    """
    connection = _Connection(endpoint, 1)
    failed: _AttemptError
    try:
        # Set up before the clock runs: a machine that imports slowly says nothing about the endpoint.
        connection.open()
        async with asyncio.timeout(timeout):
            answer = await connection.send("GET", "/models")
        return Probe(answer.status, _lists(answer.body, model))
    except _AttemptError as error:
        failed = error
    except TimeoutError:
        failed = _AttemptError(
            "timeout",
            f"no answer within {timeout:g} s",
            remedy=f"check {env_name(endpoint.role, 'BASE_URL')} and that the server is running",
        )
    finally:
        await connection.close()
    if failed.kind == "auth" or (failed.status is None and failed.kind in ("unreachable", "timeout")):
        remedy = f": {failed.remedy}" if failed.remedy else ""
        raise ChatError(failed.kind, f"{endpoint.host}: {failed.says}{remedy}", status=failed.status)
    return Probe(failed.status or 200, None)


def _lists(body: bytes, model: str) -> bool | None:
    try:
        rows = json.loads(body)["data"]
        names = {row["id"] for row in rows}
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return model in names if names else None
