"""The one way to a remote model: any endpoint that speaks OpenAI's chat completions.

What is sent, what counts as an answer, what is tried again and how long is decided here.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from pytest_spiral.chat import ChatReply, ChatRequest, Role, Schema, as_json
from pytest_spiral.errors import ChatError
from pytest_spiral.models.budget import Budget, Charge
from pytest_spiral.models.completion import Completion, MalformedError, RefusedInBodyError, read_completion, read_error
from pytest_spiral.models.connection import Answer, AttemptError, Connection
from pytest_spiral.models.endpoint import Endpoint, RetryPolicy, env_name
from pytest_spiral.models.limiter import Limiter, Slot
from pytest_spiral.status import ReasonCode

__all__ = ["OpenAICompatible", "Probe", "probe"]

# Conversations wait for their next turn, nobody waits for a chunk judge: turns go first.
_PRIORITY: dict[Role, int] = {"evaluated": 0, "user": 0, "judge": 1}

Sleep = Callable[[float], Awaitable[None]]


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
        self._connection = Connection(endpoint, max(connections, limiter.maximum if limiter else 1))
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
        except AttemptError as failed:
            call.last = failed
        except TimeoutError:
            call.out_of_time = True
        raise self._error(call)

    async def _with_retries(self, request: ChatRequest, call: _Call, deadline: asyncio.Timeout) -> ChatReply:
        # The first attempt stands before the retry loop, which costs a call that needs none a tenth of its time.
        failed: AttemptError | None = None
        try:
            return await self._once(request, call, deadline)
        except AttemptError as error:
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
            raise AttemptError(ReasonCode.CLOSED, "the client is closed")
        self._connection.open()
        call.attempts += 1
        started = time.perf_counter()
        try:
            answer = await self._connection.send("POST", "/chat/completions", content)
            completion = self._read(answer)
        except AttemptError as failed:
            if slot is not None and failed.status in (429, 529) and failed.code != ReasonCode.QUOTA:
                slot.throttled()
            if charge is not None and failed.billed:
                charge.vanished()
            if self._closed:
                raise AttemptError(ReasonCode.CLOSED, "the client was closed during the request") from None
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

    def _read(self, answer: Answer) -> Completion:
        failed: AttemptError
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
            said = read_error(error.body)
            if error.status is not None:
                failed = self._connection.refused(error.status, said, answer.headers)
            else:
                says = f"HTTP {answer.status} with an error in it ({self.endpoint.clean(said.message)})"
                failed = AttemptError(ReasonCode.BAD_RESPONSE, says, status=answer.status, again=True)
        raise failed

    def _error(self, call: _Call) -> ChatError:
        last, attempts = call.last, call.attempts
        after = f" after {attempts} attempts" if attempts > 1 else ""
        if call.out_of_time and (last is None or last.code != ReasonCode.RATE_LIMITED):
            before = f", before that: {last.says}" if last else ""
            says = f"no answer within {self.endpoint.timeout:g} s{after}{before}"
            return ChatError(ReasonCode.TIMEOUT, f"{self.endpoint.host}: {says}", attempts=max(attempts, 1))
        assert last is not None
        wait = f", it asks to wait {last.retry_after:.0f} s" if last.retry_after else ""
        remedy = f": {last.remedy}" if last.remedy else ""
        message = f"{self.endpoint.host}: {last.says}{after}{wait}{remedy}"
        return ChatError(last.code, message, attempts=attempts, http_status=last.status)


class _Call:
    """The retry loop of one call and its counts."""

    def __init__(self, policy: RetryPolicy, rng: random.Random) -> None:
        self.attempts = 0
        self.last: AttemptError | None = None
        self.out_of_time = False
        self._policy = policy
        self._rng = rng
        self._counts: Counter[str] = Counter()

    def retrying(self, sleep: Sleep, deadline: asyncio.Timeout) -> AsyncRetrying:
        """Attempts until one succeeds or none is left; raises the last `AttemptError`."""

        def stop(state: RetryCallState) -> bool:
            when = deadline.when()
            left = when - asyncio.get_running_loop().time() if when is not None else float("inf")
            return self._spent() or state.upcoming_sleep >= left

        return AsyncRetrying(
            sleep=sleep, wait=self._wait, stop=stop, retry=retry_if_exception(self._again), reraise=True
        )

    def _again(self, error: BaseException) -> bool:
        if not isinstance(error, AttemptError):
            return False
        self.last = error
        self._counts[error.code] += 1
        return error.again

    def _spent(self) -> bool:
        limited, policy = self._counts[ReasonCode.RATE_LIMITED], self._policy
        return (
            limited >= policy.max_rate_limited
            or self._counts[ReasonCode.BAD_RESPONSE] >= policy.max_bad_responses
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
    connection = Connection(endpoint, 1)
    failed: AttemptError
    try:
        # Set up before the clock runs: a machine that imports slowly says nothing about the endpoint.
        connection.open()
        async with asyncio.timeout(timeout):
            answer = await connection.send("GET", "/models")
        return Probe(answer.status, _lists(answer.body, model))
    except AttemptError as error:
        failed = error
    except TimeoutError:
        failed = AttemptError(
            ReasonCode.TIMEOUT,
            f"no answer within {timeout:g} s",
            remedy=f"check {env_name(endpoint.role, 'BASE_URL')} and that the server is running",
        )
    finally:
        await connection.close()
    if failed.code == ReasonCode.AUTH or (
        failed.status is None and failed.code in (ReasonCode.UNREACHABLE, ReasonCode.TIMEOUT)
    ):
        remedy = f": {failed.remedy}" if failed.remedy else ""
        raise ChatError(failed.code, f"{endpoint.host}: {failed.says}{remedy}", http_status=failed.status)
    return Probe(failed.status or 200, None)


def _lists(body: bytes, model: str) -> bool | None:
    try:
        rows = json.loads(body)["data"]
        names = {row["id"] for row in rows}
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return model in names if names else None
