"""HTTP to one endpoint: one request, bounded in time and size, and what its failure means.

The official client's HTTP transport carries the requests. No error leaves this room with a key in it or with the
client's exceptions chained to it: those hold the request and its headers.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_spiral.models.completion import ErrorBody, read_error
from pytest_spiral.models.endpoint import Endpoint, env_name
from pytest_spiral.status import ReasonCode

if TYPE_CHECKING:
    import httpx2

__all__ = ["Answer", "AttemptError", "Connection"]

# Error bodies are quoted in 300 characters; a proxy's error page is no reason to read megabytes.
_MAX_ERROR_BODY = 64 * 2**10
_CONNECT_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")


class AttemptError(Exception):
    """One attempt that failed. says: a clause for the message. retry_after: seconds the endpoint asks for.

    billed: whether the endpoint may have answered, and charged for it, all the same.
    """

    def __init__(
        self,
        code: ReasonCode,
        says: str,
        *,
        status: int | None = None,
        again: bool = False,
        retry_after: float | None = None,
        remedy: str = "",
        billed: bool = False,
    ) -> None:
        super().__init__(says)
        self.code = code
        self.says = says
        self.status = status
        self.again = again
        self.retry_after = retry_after
        self.remedy = remedy
        self.billed = billed


class _TooLargeError(Exception):
    """A body beyond its limit."""


class Connection:
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
            raise AttemptError(ReasonCode.UNREACHABLE, says, remedy=remedy)

    async def send(self, method: str, path: str, content: bytes | None = None) -> Answer:
        """The answer with a status below 300. Raises `AttemptError`."""
        self.open()
        failed: AttemptError | None = None
        try:
            async with asyncio.timeout(self.endpoint.attempt_timeout):
                answer = await self._exchange(method, path, content)
        except TimeoutError:
            says = f"no answer within {self.endpoint.attempt_timeout:g} s"
            failed = AttemptError(ReasonCode.TIMEOUT, says, again=True, billed=True)
        except _TooLargeError:
            says = f"an answer of more than {self.endpoint.max_body} bytes"
            failed = AttemptError(ReasonCode.BAD_RESPONSE, says, again=True, billed=True)
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

    async def _exchange(self, method: str, path: str, content: bytes | None) -> Answer:
        assert self._client is not None
        request = self._request(method, path, content)
        # Streamed, so that the body can be bounded.
        response = await self._client.send(request, stream=True)
        try:
            body = await self._body(response)
        finally:
            await response.aclose()
        return Answer(response.status_code, _lower(response.headers), body)

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

    def refused(self, status: int, error: ErrorBody, headers: Mapping[str, str]) -> AttemptError:
        """What an error status means. 1xx to 3xx count as a wrong address."""
        message = self.endpoint.clean(error.message)
        says = f"HTTP {status}" + (f" ({message})" if message else "")
        role = self.endpoint.role
        key, url = env_name(role, "API_KEY"), env_name(role, "BASE_URL")
        if status in (401, 403):
            had = "check the key in" if self.endpoint.api_key else "no key was sent: set"
            return AttemptError(ReasonCode.AUTH, says, status=status, remedy=f"{had} {key}")
        if status == 402 or (status == 429 and _is_quota(error)):
            return AttemptError(ReasonCode.QUOTA, says, status=status, remedy=f"add credit for the account of {key}")
        wait = _retry_after(headers)
        if status == 429:
            remedy = "lower --concurrency or raise the account's rate limit"
            return AttemptError(
                ReasonCode.RATE_LIMITED, says, status=status, again=True, retry_after=wait, remedy=remedy
            )
        if status >= 500 or status in (408, 409):
            code = ReasonCode.TIMEOUT if status == 408 else ReasonCode.SERVER_ERROR
            return AttemptError(code, says, status=status, again=True, retry_after=wait)
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
        return AttemptError(ReasonCode.BAD_REQUEST, says, status=status, remedy=remedy)

    def _unreachable(self, error: Exception) -> AttemptError:
        remedy = f"check {env_name(self.endpoint.role, 'BASE_URL')} and that the server is running"
        chain = list(_chain(error))
        for cause in chain:
            name = type(cause).__name__
            if isinstance(cause, ssl.SSLError) or "Certificate" in name or "SSL" in name:
                return AttemptError(
                    ReasonCode.UNREACHABLE, f"TLS failed ({self.endpoint.clean(str(cause))})", remedy=remedy
                )
            if "DNS" in name:
                return AttemptError(ReasonCode.UNREACHABLE, "host name not found", again=True, remedy=remedy)
            if isinstance(cause, ConnectionRefusedError):
                return AttemptError(ReasonCode.UNREACHABLE, "connection refused", again=True, remedy=remedy)
        for cause in chain:
            name = type(cause).__name__
            if isinstance(cause, ConnectionResetError | BrokenPipeError) or "Disconnected" in name or "Payload" in name:
                says = "connection lost before the answer was complete"
                return AttemptError(ReasonCode.UNREACHABLE, says, again=True, billed=True)
            if isinstance(cause, TimeoutError):
                return AttemptError(
                    ReasonCode.TIMEOUT, f"no connection within {_CONNECT_TIMEOUT:g} s", again=True, remedy=remedy
                )
        root = chain[-1]
        says = f"{type(root).__name__}: {root}" if str(root) else type(root).__name__
        known = isinstance(root, OSError) or type(error).__name__ in ("APIConnectionError", "APITimeoutError")
        return AttemptError(ReasonCode.UNREACHABLE, self.endpoint.clean(says), again=known, remedy=remedy, billed=True)


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
    plain = endpoint.is_loopback and endpoint.base_url.startswith("http:")
    return DefaultAioHttpClient(
        headers=headers,
        trust_env=trust_env,
        # Where no TLS is spoken nobody need be trusted, and nothing be read for it.
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else _certificates(trust_env, *_own_certificates()),
        # None would silently mean aiohttp's 100.
        limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
        # The deadlines are ours; the client's pool timeout would count the time spent connecting.
        timeout=httpx2.Timeout(None, connect=_CONNECT_TIMEOUT),
        follow_redirects=False,
    )


def _own_certificates() -> tuple[str | None, str | None]:
    return os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


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
