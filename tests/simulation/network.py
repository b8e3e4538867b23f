"""A network in memory with one endpoint behind it, which does whatever the seed says: the catalogue of faults, latency,
throttling, outages, replies that are lost on the way, odd counts and garbled bodies.

What a healthy endpoint says follows from the request alone, so that runs can be compared.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pytest_spiral.chat import ChatReply, ChatRequest, Finish, TokenUsage
from pytest_spiral.errors import ChatError
from pytest_spiral.models.attempt import AttemptError, HttpAnswer, refused, unreachable
from pytest_spiral.models.completion import read_error
from pytest_spiral.models.endpoint import Endpoint
from pytest_spiral.models.openai_compatible import OpenAICompatible
from pytest_spiral.status import ReasonCode
from tests.fakes.openai_server import Fault, Reply
from tests.faults.catalogue import CATALOGUE, Case, Nature
from tests.faults.runs import cast

__all__ = ["Call", "Client", "Expected", "Model", "Outage", "Server", "Serving", "Weather", "draw_weather"]

# Counts of tokens that endpoints have been seen to send, and worse.
_ODD_COUNTS: tuple[Any, ...] = (2**62, 2**63, 2**64 - 1, 10**30, -1, 0.5, True, None, "many", [], 10**12)
_ODD_NAMES: tuple[Any, ...] = ("\ud800m", "m\x00", "m" * 1_000, 7, None, [])
_FINISHES: dict[object, Finish] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
}


_THOUGHT = "What would help? Nothing of this is for the reader."


def _truncated(text: str) -> Fault:
    return Fault.raw(_completion(Reply(text), "m")[:-20])


def _error_beside(text: str) -> Fault:
    body = json.loads(_completion(Reply(text[: len(text) // 2]), "m"))
    return Fault.raw(json.dumps({**body, "error": {"code": 502, "message": "provider died"}}))


# Faults that the catalogue does not have, because they need more than one answer to show.
_MORE: tuple[Case, ...] = (
    Case("body cut off", _truncated, "passing", ReasonCode.BAD_RESPONSE),
    Case("error beside choices", _error_beside, "passing", ReasonCode.SERVER_ERROR),
    Case("429, Retry-After: 0", lambda _: Fault.status_code(429, retry_after=0), "passing", ReasonCode.RATE_LIMITED),
    Case("429, Retry-After: -3", lambda _: Fault.status_code(429, retry_after=-3), "passing", ReasonCode.RATE_LIMITED),
    Case(
        "429, Retry-After in the past",
        lambda _: Fault.status_code(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        "passing",
        ReasonCode.RATE_LIMITED,
    ),
    Case("503, Retry-After: 0", lambda _: Fault.status_code(503, retry_after=0), "passing", ReasonCode.SERVER_ERROR),
    Case("reply lost on the way", lambda _: Fault.reset(), "passing", ReasonCode.UNREACHABLE),
)


@dataclass(frozen=True)
class Expected:
    """What must be stored of a reply. model: None where the name that was sent cannot be kept as it is."""

    text: str
    finish: Finish
    model: str | None
    usage: TokenUsage
    reasoning: str = ""

    def fits(self, reply: ChatReply) -> bool:
        """Whether a stored reply is this one."""
        same = (reply.text, reply.finish, reply.usage, reply.reasoning) == (
            self.text,
            self.finish,
            self.usage,
            self.reasoning,
        )
        return same and self.model in (None, reply.model)


@dataclass
class Call:
    """One call of a unit.

    began: number of the step. once: not to be tried again. servings: what became of each attempt. ended: "stored", ...
    """

    request: ChatRequest
    process: str
    began: int
    at: float
    once: bool = False
    servings: list[Serving] = field(default_factory=list)
    ended: str = ""


@dataclass
class Serving:
    """One request as the server saw it.

    expected: None where no reply was sent that may be stored. altered: a healthy endpoint would have said otherwise.
    answered: when the answer arrived, or the client went away.
    """

    number: int
    session: int
    call: Call
    at: float
    what: str
    nature: Nature
    code: ReasonCode | None
    expected: Expected | None
    altered: bool
    answered: float = math.inf
    state: Literal["in flight", "delivered", "abandoned"] = "in flight"


CALL: ContextVar[Call] = ContextVar("CALL")


@dataclass(frozen=True)
class Outage:
    """A time in which the endpoint answers nothing else."""

    start: float
    seconds: float
    make: Callable[[str], Reply | Fault]
    name: str

    def covers(self, now: float) -> bool:
        return self.start <= now < self.start + self.seconds


@dataclass(frozen=True)
class Weather:
    """How the endpoint behaves in one session. rate: share of requests that meet one of the `cases`. most: requests at
    once before it answers 429. odd: share of replies with odd counts or names. thinks: share of replies with
    reasoning in them. twice: share of requests that a proxy sends on twice, of which one answer comes back. honest:
    counts of tokens are possible ones, so that a limit on the cost can be kept."""

    cases: Sequence[Case] = ()
    rate: float = 0.0
    outages: Sequence[Outage] = ()
    most: int | None = None
    latency: tuple[float, float] = (0.05, 1.0)
    odd: float = 0.0
    thinks: float = 0.0
    twice: float = 0.0
    honest: bool = False

    def __str__(self) -> str:
        parts = [f"{self.rate:.0%} of {', '.join(case.name for case in self.cases)}"] if self.cases else []
        parts += [f"{o.name} for {o.seconds:.0f} s from {o.start:.0f} s on" for o in self.outages]
        parts += [f"429 beyond {self.most} at once"] if self.most else []
        parts += [f"{self.odd:.0%} odd counts"] if self.odd else []
        parts += [f"{self.twice:.0%} delivered twice"] if self.twice else []
        return "; ".join(parts) or "fair"


def draw_weather(rng: random.Random, now: float) -> Weather:
    """Any combination of everything."""
    cases = [*CATALOGUE, *_MORE]
    chosen = rng.sample(cases, rng.choice((0, 2, 4, 8, 16, 32)))
    if rng.random() < 0.7:
        chosen = [case for case in chosen if case.nature != "final"]
    outages = []
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        case = rng.choice([case for case in cases if case.nature == "passing" and case.kind != ReasonCode.BAD_RESPONSE])
        outages.append(Outage(now + rng.uniform(0, 20), rng.choice((2, 10, 30, 60, 90)), case.make, case.name))
    low = rng.choice((0.01, 0.2, 2.0))
    return Weather(
        cases=chosen,
        rate=rng.choice((0.05, 0.2, 0.5)) if chosen else 0.0,
        outages=outages,
        most=rng.choice((None, None, None, 1, 2, 4)),
        latency=(low, low * rng.choice((1.5, 10))),
        odd=rng.choice((0.0, 0.0, 0.1, 0.5)),
        thinks=rng.choice((0.0, 0.0, 0.2)),
    )


@dataclass
class Server:
    """The endpoint. served: every request in order. weather: may be changed at any time. refuses: a parameter that no
    request may have.

    check: called with every serving before it is answered.
    """

    seed: int
    now: Callable[[], float]
    check: Callable[[Serving], None]
    weather: Weather = Weather()
    session: int = 0
    refuses: str = ""
    served: list[Serving] = field(default_factory=list)
    by_key: dict[str, list[Serving]] = field(default_factory=dict)
    _flying: list[Serving] = field(default_factory=list)
    _times: Counter[str] = field(default_factory=Counter)
    _answer: Callable[[dict[str, Any], int], Any] = field(default_factory=lambda: _cast())

    def in_flight(self) -> Sequence[Serving]:
        """Requests that are not answered yet."""
        self._flying = [serving for serving in self._flying if serving.state == "in flight"]
        return self._flying

    def serve(self, content: bytes) -> tuple[Serving, Reply | Fault, float]:
        """Decide on an answer, and after how many seconds it comes."""
        call = CALL.get()
        rng, serving, answer = self._decide(call, content)
        self.check(serving)
        if random.Random(f"twice-{self.seed}-{call.request.key}-{serving.number}").random() < self.weather.twice:
            # A second answer on the way to a client that will never see it.
            _, lost, _ = self._decide(call, content)
            lost.what, lost.state, lost.answered = f"{lost.what}, never delivered", "abandoned", self.now()
            self._keep(lost)
        self._keep(serving)
        self._flying.append(serving)
        call.servings.append(serving)
        return serving, answer, rng.uniform(*self.weather.latency)

    def _decide(self, call: Call, content: bytes) -> tuple[random.Random, Serving, Reply | Fault]:
        key = call.request.key
        nth = self._times[key]
        self._times[key] += 1
        rng = random.Random(f"{self.seed}-{key}-{nth}")
        body = json.loads(content)
        answer, case = self._draw(rng, body, len(content))
        nature, code = (case.nature, case.kind) if case else ("harmless", None)
        expected = _expected(answer, body["model"]) if code is None else None
        name = case.name if case else "reply"
        altered = nature == "unusable"
        serving = Serving(len(self.served), self.session, call, self.now(), name, nature, code, expected, altered)
        return rng, serving, answer

    def _keep(self, serving: Serving) -> None:
        self.served.append(serving)
        self.by_key.setdefault(serving.call.request.key, []).append(serving)

    def _draw(self, rng: random.Random, body: dict[str, Any], size: int) -> tuple[Reply | Fault, Case | None]:
        weather = self.weather
        said = self._answer(body, 0)
        reply = said if isinstance(said, Reply) else Reply(said)
        text = str(reply.content)
        if self.refuses in body:
            fault = Fault.status_code(400, f"Unsupported parameter: '{self.refuses}' is not supported with this model.")
            return fault, Case(f"{self.refuses} refused", lambda _: fault, "final", ReasonCode.BAD_REQUEST)
        for outage in weather.outages:
            if outage.covers(self.now()):
                answer = outage.make(text)
                return answer, Case(outage.name, outage.make, "passing", _code_of(outage.name))
        if weather.most is not None and len(self.in_flight()) >= weather.most:
            after = rng.choice((None, 0, 1, 5))
            case = Case("429, too many", lambda _: Fault.drop(), "passing", ReasonCode.RATE_LIMITED)
            return Fault.status_code(429, retry_after=after), case
        if rng.random() < weather.rate:
            case = rng.choice(weather.cases)
            answer = case.make(text)
            if case.name != "slow drip":
                return answer, case
        if rng.random() < weather.odd:
            usage = {name: rng.choice((*_ODD_COUNTS, 5)) for name in ("prompt_tokens", "completion_tokens")}
            return replace(reply, usage=usage, model=rng.choice((*_ODD_NAMES, "m"))), None
        if rng.random() < weather.thinks:
            reply = replace(reply, content=f"<think>{_THOUGHT}</think>{text}")
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 100
        most = (size, limit) if weather.honest else (10**6, 10**6)
        counts = {"prompt_tokens": rng.randrange(1, most[0]), "completion_tokens": rng.randrange(1, most[1])}
        return replace(reply, usage=counts), None


def _cast() -> Any:
    return _CAST


_CAST = cast()
_CODES = {case.name: case.kind for case in (*CATALOGUE, *_MORE)}


def _code_of(name: str) -> ReasonCode | None:
    return _CODES[name]


def _completion(reply: Reply, model: Any) -> bytes:
    message = {"role": "assistant", "content": reply.content, "refusal": reply.refusal, "tool_calls": reply.tool_calls}
    name = model if reply.model is None else reply.model
    choice = {"index": 0, "message": message, "finish_reason": reply.finish}
    return json.dumps({"model": name, "choices": [choice], "usage": reply.usage}).encode("ascii")


def _expected(answer: Reply | Fault, model: str) -> Expected:
    if isinstance(answer, Fault):
        # The one fault of a healthy completion: another content type.
        return Expected(json.loads(answer.body)["choices"][0]["message"]["content"], "stop", "", TokenUsage())
    name = model if answer.model is None else answer.model
    plain = isinstance(name, str) and name.isprintable() and len(name) < 200
    text = answer.content if isinstance(answer.content, str) else ""
    usage = answer.usage
    prompt = _count(usage.get("prompt_tokens"))
    cached = _count(usage.get("prompt_tokens_details", {}).get("cached_tokens"))
    counts = TokenUsage(prompt, min(prompt, cached), _count(usage.get("completion_tokens")))
    finish = "refusal" if answer.refusal else _FINISHES[answer.finish]
    thought, _, said = (
        text.removeprefix("<think>").partition("</think>") if text.startswith("<think>") else ("", "", text)
    )
    return Expected(said or answer.refusal or "", finish, name if plain else None, counts, thought)


def _count(value: object) -> int:
    return value if type(value) is int and 0 < value <= 10**9 else 0


class Client:
    """The client's end of the network, in the process that is running."""

    def __init__(self, endpoint: Endpoint, server: Server) -> None:
        self._endpoint = endpoint
        self._server = server

    async def request(self, path: str, content: bytes | None = None) -> HttpAnswer:
        """What `HttpClient.request` does, without HTTP."""
        assert content is not None
        serving, answer, latency = self._server.serve(content)
        try:
            await asyncio.sleep(latency)
            result = await self._received(answer, content)
        except AttemptError:
            serving.state = "delivered"
            raise
        except BaseException:
            serving.state = "abandoned"
            raise
        finally:
            serving.answered = self._server.now()
        serving.state = "delivered"
        return result

    async def close(self) -> None:
        """Nothing is open."""

    async def _received(self, answer: Reply | Fault, content: bytes) -> HttpAnswer:
        endpoint = self._endpoint
        if isinstance(answer, Reply):
            await asyncio.sleep(answer.seconds)
            body = _completion(answer, json.loads(content)["model"])
            return HttpAnswer(200, {"content-type": "application/json"}, body)
        if answer.kind == "refuse":
            raise unreachable(endpoint, ConnectionRefusedError())
        if answer.kind in ("drop", "reset"):
            raise unreachable(endpoint, ConnectionResetError())
        if answer.kind in ("hang", "drip"):
            await asyncio.sleep(3600)
        if len(answer.body) > endpoint.max_body:
            message = f"an answer of more than {endpoint.max_body} bytes"
            raise AttemptError(ReasonCode.BAD_RESPONSE, message, again=True, billed=True)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status >= 300:
            raise refused(endpoint, answer.status, read_error(answer.body), headers)
        return HttpAnswer(answer.status, {**headers, "content-type": answer.content_type}, answer.body)


class Model(OpenAICompatible):
    """The real model on the network in memory, observed."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        server: Server,
        begin: Callable[[ChatRequest, bool], Call],
        end: Callable[[Call, ChatReply | ChatError], None],
        **options: Any,
    ) -> None:
        super().__init__(endpoint, connect=lambda endpoint: Client(endpoint, server), **options)
        self._begin = begin
        self._once = endpoint.retry.max_attempts == 1
        self._end = end

    async def complete(self, request: ChatRequest) -> ChatReply:
        call = self._begin(request, self._once)
        CALL.set(call)
        try:
            reply = await super().complete(request)
        except ChatError as error:
            self._end(call, error)
            raise
        self._end(call, reply)
        return reply
