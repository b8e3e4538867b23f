"""A scriptable OpenAI-compatible server on a real socket, for the paths that cross the network.

    with FakeOpenAI(lambda body, n: "hello" if n else Fault.status(429, retry_after=1)) as server:
        Endpoint("evaluated", server.base_url)

The handler gets each chat request and its number from 0 and returns a text, a `Reply` or a `Fault`. Everything asked is
recorded, keys excepted. Runs in a thread of its own, so that a test may block its loop or have none.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from aiohttp import web

from tests.fakes.dialects import Dialect, Refusal

__all__ = ["FakeOpenAI", "Fault", "Handler", "Recorded", "Reply", "fake_openai"]


@dataclass(frozen=True)
class Reply:
    """A well-formed completion. content: any JSON value, as some vendors send. seconds: extra latency."""

    content: Any = "ok"
    finish: str | None = "stop"
    refusal: str | None = None
    model: str | None = None
    tool_calls: Any = None
    reasoning: str | None = None
    usage: Any = field(
        default_factory=lambda: {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 4},
        }
    )
    seconds: float = 0.0

    @classmethod
    def refused(cls, text: str = "I cannot help with that.") -> Reply:
        """A refusal in its own field, content null."""
        return cls(content=None, refusal=text)

    @classmethod
    def cut(cls, text: str = "and then") -> Reply:
        """A reply that ran into the token limit."""
        return cls(content=text, finish="length")

    @classmethod
    def filtered(cls, text: str = "") -> Reply:
        """A reply stopped by a content filter."""
        return cls(content=text, finish="content_filter")

    @classmethod
    def tool_call(cls) -> Reply:
        """A call of a tool that nobody offered, content null."""
        call = {"id": "call-1", "type": "function", "function": {"name": "answer", "arguments": "{}"}}
        return cls(content=None, finish="tool_calls", tool_calls=[call])

    @classmethod
    def schema_ignored(cls, text: str = "Sure! Here is what I think.") -> Reply:
        """Prose where a schema was asked for: an endpoint that only claims to enforce it."""
        return cls(content=text)


@dataclass(frozen=True)
class Fault:
    """Anything that is no completion. Built by the class methods below. name: for test ids."""

    kind: Literal["answer", "bytes", "hang", "reset", "drop", "drip", "refuse"]
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    name: str = ""

    @classmethod
    def status_code(
        cls,
        code: int,
        message: str = "",
        *,
        error_code: str | None = None,
        retry_after: object = None,
        headers: dict[str, str] | None = None,
    ) -> Fault:
        """An error status with OpenAI's error object."""
        sent = dict(headers or {})
        if retry_after is not None:
            sent["Retry-After"] = str(retry_after)
        error = {"message": message or f"fault {code}", "type": "fake_error", "param": None, "code": error_code}
        return cls("answer", code, json.dumps({"error": error}).encode(), headers=sent, name=f"status-{code}")

    @classmethod
    def raw(
        cls, body: bytes | str, *, status: int = 200, content_type: str = "application/json", name: str = "raw"
    ) -> Fault:
        """Exactly these bytes."""
        return cls("answer", status, body.encode() if isinstance(body, str) else body, content_type, name=name)

    @classmethod
    def html(cls, status: int = 200) -> Fault:
        """A proxy's page."""
        page = "<!DOCTYPE html><html><head><title>Welcome</title></head><body>hello</body></html>"
        return cls.raw(page, status=status, content_type="text/html; charset=utf-8", name=f"html-{status}")

    @classmethod
    def broken_json(cls) -> Fault:
        """JSON that ends in the middle."""
        return cls.raw('{"choices": [{"message": {"content": "hel', name="broken-json")

    @classmethod
    def empty_object(cls) -> Fault:
        """`{}`."""
        return cls.raw("{}", name="empty-object")

    @classmethod
    def empty_choices(cls) -> Fault:
        """A completion without choices."""
        return cls.raw('{"id": "x", "object": "chat.completion", "choices": []}', name="empty-choices")

    @classmethod
    def error_in_200(cls, code: object, message: str = "provider failed") -> Fault:
        """An error object in a 200, as routers send it."""
        return cls.raw(json.dumps({"error": {"code": code, "message": message}}), name=f"error-in-200-{code}")

    @classmethod
    def error_beside_choices(cls, code: object = None, text: str = "half a rep") -> Fault:
        """A completion that an error has cut short, as routers send it."""
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "error": {"code": code, "message": "provider failed"}})
        return cls.raw(body, name=f"error-beside-choices-{code}")

    @classmethod
    def broken_chunks(cls) -> Fault:
        """A chunked body whose second chunk has no size."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        return cls("bytes", body=head + b'4\r\n{"ch\r\nZZ\r\noices\r\n0\r\n\r\n', name="broken-chunks")

    @classmethod
    def cut_short(cls, text: str = "ok") -> Fault:
        """A valid completion, shorter than its declared length, and the connection is closed."""
        return cls("bytes", body=_whole(_completion(text), missing=50), name="cut-short")

    @classmethod
    def corrupt_gzip(cls, text: str = "ok") -> Fault:
        """A valid completion, compressed, with wrong bytes in the middle."""
        packed = bytearray(gzip.compress(_completion(text)))
        packed[len(packed) // 2 : len(packed) // 2 + 4] = b"\xff\x00\xff\x00"
        return cls("bytes", body=_whole(bytes(packed), "Content-Encoding: gzip\r\n"), name="corrupt-gzip")

    @classmethod
    def not_http(cls) -> Fault:
        """Something else than HTTP."""
        return cls("bytes", body=b"220 mail.example.com ESMTP\r\n\r\n", name="not-http")

    @classmethod
    def huge(cls, size: int) -> Fault:
        """A valid completion of more than `size` bytes."""
        reply = {"choices": [{"message": {"role": "assistant", "content": "x" * size}, "finish_reason": "stop"}]}
        return cls.raw(json.dumps(reply), name="huge")

    @classmethod
    def wrong_content_type(cls, text: str = "ok") -> Fault:
        """A valid completion labelled as plain text."""
        reply = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
        return cls.raw(json.dumps(reply), content_type="text/plain", name="wrong-content-type")

    @classmethod
    def hang(cls, seconds: float = 3600) -> Fault:
        """No answer at all."""
        return cls("hang", seconds=seconds, name="hang")

    @classmethod
    def reset(cls) -> Fault:
        """A connection reset in the middle of the body."""
        return cls("reset", name="reset")

    @classmethod
    def drop(cls) -> Fault:
        """A connection closed before anything was answered."""
        return cls("drop", name="drop")

    @classmethod
    def drip(cls, text: str = "ok", seconds: float = 0.1) -> Fault:
        """A valid completion, one byte every `seconds`."""
        reply = {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
        return cls("drip", body=json.dumps(reply).encode(), seconds=seconds, name="drip")

    @classmethod
    def refuse(cls, seconds: float) -> Fault:
        """The server goes away: open connections are reset, new ones refused for so long."""
        return cls("refuse", seconds=seconds, name="refuse")


def _completion(text: str) -> bytes:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]}).encode()


def _whole(body: bytes, header: str = "", missing: int = 0) -> bytes:
    """An answer as it is on the wire; without announcing the end, the next request might still be sent on it."""
    header += f"Content-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body) + missing}\r\n"
    return f"HTTP/1.1 200 OK\r\n{header}\r\n".encode() + body


Handler = Callable[[dict[str, Any], int], "str | Reply | Fault"]


@dataclass(frozen=True)
class Recorded:
    """One chat request. headers: lower case, without keys. at: monotonic seconds."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str
    at: float
    raw: bytes


class FakeOpenAI:
    """The server; `with` starts and stops it.

    latency: seconds before every answer. together: so many requests must have been in flight at once before the first
    reply is sent, which makes the peak independent of timing. key: answer 401, echoing the key, to requests that bring
    another one. models: what /v1/models lists; an integer is sent as error status instead. record: keep every request;
    `served` counts them in any case. dialect: the service that is imitated, which decides on keys, models and paths.
    pages: answer everything below /page with a web page, and redirect what is below /old.
    """

    def __init__(
        self,
        handler: Handler | None = None,
        *,
        latency: float = 0.0,
        together: int = 0,
        key: str | None = None,
        models: tuple[str, ...] | int = ("fake",),
        prefix: str = "/v1",
        record: bool = True,
        dialect: Dialect | None = None,
        pages: bool = False,
    ) -> None:
        self.handler: Handler = handler or (lambda body, n: "ok")
        self.latency = latency
        self.together = together
        self.requests: list[Recorded] = []
        self.served = 0
        self.probes = 0
        self.in_flight = 0
        self.peak = 0
        self._record = record
        self._key = key
        self._models = models
        self._dialect = dialect
        self._pages = pages
        self._prefix = dialect.prefix if dialect else prefix
        self._port = 0
        self._site: web.TCPSite | None = None
        self._runner: web.AppRunner | None = None
        self._connections: set[asyncio.BaseTransport] = set()
        self._returning: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="fake-openai", daemon=True)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """What a client is given."""
        return self.origin + self._prefix

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the fake server did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get(f"{self._prefix}/models", self._list)
        chat = self._dialect.chat if self._dialect else "/chat/completions"
        app.router.add_post(f"{self._prefix}{chat}", self._chat)
        if self._pages:
            app.router.add_route("*", "/page/{rest:.*}", self._page)
            app.router.add_route("*", "/old/{rest:.*}", self._moved)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        self._runner = runner
        self._site = web.TCPSite(runner, "127.0.0.1", 0)
        await self._site.start()
        self._port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text="<!DOCTYPE html><title>Welcome</title>", content_type="text/html")

    async def _moved(self, request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"Location": self._prefix + "/" + request.match_info["rest"]})

    def _refuse_key(self, request: web.Request) -> web.Response | None:
        if self._dialect is not None:
            given_key = self._dialect.key_of(request.headers)
            return None if self._key in (None, given_key) else _json(self._dialect.wrong_key(given_key))
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._key is None or given == self._key:
            return None
        message = f"Incorrect API key provided: {given}"
        return web.json_response({"error": {"message": message, "code": "invalid_api_key"}}, status=401)

    async def _list(self, request: web.Request) -> web.Response:
        self.probes += 1
        if self._dialect is not None:
            return _json(self._dialect.list(self._refuse_key(request) is None))
        if isinstance(self._models, int):
            return web.json_response({"error": {"message": "no list"}}, status=self._models)
        rows = [{"id": name, "object": "model"} for name in self._models]
        return self._refuse_key(request) or web.json_response({"object": "list", "data": rows})

    async def _go_away(self, seconds: float) -> None:
        """Refuse connections for a while, on the same port."""
        assert self._site is not None
        assert self._runner is not None
        await self._site.stop()
        for connection in list(self._connections):
            connection.abort()  # type: ignore[attr-defined]  # those of asyncio's sockets can
        await asyncio.sleep(seconds)
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await self._site.start()
        self._returning = None

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            self._connections = {t for t in self._connections if not t.is_closing()} | {request.transport}
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            raw = await request.read()
            headers = {
                k.lower(): v for k, v in request.headers.items() if k.lower() not in ("authorization", "api-key")
            }
            body, number = json.loads(raw), self.served
            self.served += 1
            if self._record:
                self.requests.append(Recorded(body, headers, request.path_qs, time.monotonic(), raw))
            refused = self._refuse_key(request)
            if refused is not None:
                return refused
            if self._dialect is not None:
                if refusal := self._dialect.refuses(body, request.path, request.query):
                    return _json(refusal)
                body = self._dialect.heard(body)
            return await self._answer(request, self.handler(body, number), body)
        finally:
            self.in_flight -= 1

    async def _answer(
        self, request: web.Request, answer: str | Reply | Fault, body: dict[str, Any]
    ) -> web.StreamResponse:
        if isinstance(answer, str):
            answer = Reply(answer)
        while isinstance(answer, Reply) and self.peak < self.together:
            await asyncio.sleep(0.005)
        if isinstance(answer, Reply) or answer.kind in ("answer", "hang"):
            await asyncio.sleep(self.latency + answer.seconds)
        if isinstance(answer, Reply):
            message = {"role": "assistant", "content": answer.content, "refusal": answer.refusal}
            if answer.reasoning is not None:
                message["reasoning_content"] = answer.reasoning
            if answer.tool_calls is not None:
                message["tool_calls"] = answer.tool_calls
            completion = {
                "id": "chatcmpl-fake",
                "object": "chat.completion",
                "created": 0,
                "model": answer.model or body.get("model"),
                "choices": [{"index": 0, "message": message, "finish_reason": answer.finish}],
                "usage": answer.usage,
            }
            if self._dialect is not None:
                completion = self._dialect.completion(completion)
            # ASCII: replies may hold lone surrogates, as models emit them.
            return web.Response(body=json.dumps(completion).encode("ascii"), content_type="application/json")
        if answer.kind in ("drop", "refuse"):
            if answer.kind == "refuse" and self._returning is None:
                self._returning = asyncio.get_running_loop().create_task(self._go_away(answer.seconds))
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if answer.kind == "bytes":
            assert isinstance(request.transport, asyncio.Transport)
            request.transport.write(answer.body)
            request.transport.close()
            return web.Response()
        if answer.kind == "drip":
            response = web.StreamResponse(headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            for byte in answer.body:
                await response.write(bytes([byte]))
                await asyncio.sleep(answer.seconds)
            return response
        if answer.kind == "reset":
            response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
            await response.prepare(request)
            await response.write(b'{"choices": [')
            if request.transport is not None:
                request.transport.abort()
            return response
        headers = {**answer.headers, "Content-Type": answer.content_type}
        return web.Response(status=answer.status, body=answer.body, headers=headers)


def _json(refusal: Refusal) -> web.Response:
    return web.json_response(refusal[1], status=refusal[0])


@contextmanager
def fake_openai(handler: Handler | None = None, **options: Any) -> Iterator[FakeOpenAI]:
    """For fixtures: a server that is gone when the test is over."""
    with FakeOpenAI(handler, **options) as server:
        yield server
