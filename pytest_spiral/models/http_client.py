"""HTTP to one endpoint through openai's aiohttp client: one request, bounded in time and size.

The methods of `openai.AsyncOpenAI` above it take a millisecond more for each request, and all that they add is not
wanted here: headers that describe this machine, retries and checks of their own.
Imported when the first request is made, because openai and aiohttp take half a second to import.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from urllib.parse import urlsplit

import httpx2
from openai import DefaultAioHttpClient

from pytest_spiral.models.attempt import CONNECT_SECONDS, Answer, AttemptError, refused, unreachable
from pytest_spiral.models.completion import read_error
from pytest_spiral.models.endpoint import Endpoint, Secret, shown_url
from pytest_spiral.status import ReasonCode

# Error bodies are quoted in 300 characters; a proxy's error page is no reason to read megabytes.
_MAX_ERROR_BODY = 64 * 2**10
# More than any --concurrency: the limiter decides how many requests are in flight. None would mean aiohttp's 100.
_MAX_CONNECTIONS = 10_000
_JSON = {"Content-Type": "application/json"}
# Hosts and ports of the endpoints of this process.
_hosts: set[str] = set()


class _TooLargeError(Exception):
    """A body beyond its limit."""


class HttpClient:
    """Connections to one endpoint. Belongs to the event loop that makes the requests.

    Raises `ValueError` or `OSError` where proxies or certificates of the environment cannot be used.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        _hosts.add(endpoint.host)
        logging.getLogger("httpx2").addFilter(_hide_paths)
        key, provider = endpoint.api_key, endpoint.provider
        # Names of headers have no case, and those that the user gives replace others, the key's included.
        headers = httpx2.Headers({"Accept": "application/json", "User-Agent": "pytest-spiral", **provider.headers})
        if key:
            headers[provider.key_header] = f"{provider.key_prefix}{key.reveal()}"
        headers.update(_revealed(endpoint.headers))
        self._http = DefaultAioHttpClient(
            headers=headers,
            params={**provider.query, **_revealed(endpoint.query)},
            # How long an answer may take is decided by the caller.
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS),
            # A proxy of the environment cannot reach this machine's loopback.
            trust_env=not endpoint.is_loopback,
            verify=_trusted(),
            limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
            follow_redirects=False,
        )

    async def request(self, path: str, content: bytes | None = None) -> Answer:
        """The answer to a POST of `content`, or to a GET without it, if its status is a success.

        Raises:
            AttemptError: Everything else. No exception that holds the API key is chained to it.
        """
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(endpoint.attempt_timeout):
                answer = await self._exchange(path, content)
            if 200 <= answer.status < 300:
                return answer
            failed = refused(endpoint, answer.status, read_error(answer.body, answer.content_type), answer.headers)
        except TimeoutError:
            message = f"no answer within {endpoint.attempt_timeout:g} s"
            failed = AttemptError(ReasonCode.TIMEOUT, message, again=True, billed=True)
        except _TooLargeError:
            message = f"an answer of more than {endpoint.max_body} bytes"
            failed = AttemptError(ReasonCode.BAD_RESPONSE, message, again=True, billed=True)
        except Exception as error:  # whatever httpx2 and aiohttp raise
            failed = unreachable(endpoint, error)
        # Raised out here, so that the caught exception is not chained to it.
        raise failed

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _exchange(self, path: str, content: bytes | None) -> Answer:
        """The answer, whatever its status; too long an error is cut."""
        method, headers = ("GET", None) if content is None else ("POST", _JSON)
        url = _address(f"{self._endpoint.base_url}{path}")
        # Streamed, because a body that is not streamed is read to its end, however long it is.
        async with self._http.stream(method, url, content=content, headers=headers) as response:
            if response.is_success:
                body = await _read(response, self._endpoint.max_body)
                if len(body) > self._endpoint.max_body:
                    raise _TooLargeError
            else:
                body = b""
                with suppress(Exception):  # the status says enough; a broken body must not hide it
                    body = (await _read(response, _MAX_ERROR_BODY))[:_MAX_ERROR_BODY]
            return Answer(response.status_code, response.headers, body)


async def _read(response: httpx2.Response, limit: int) -> bytes:
    """The body, or more than `limit` bytes of a longer one."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


@cache
def _address(url: str) -> httpx2.URL:
    """Taken apart once, because that takes longer than the rest of making a request."""
    return httpx2.URL(url)


def _revealed(values: Mapping[str, tuple[str, Secret]]) -> dict[str, str]:
    return {name: text + secret.reveal() for name, (text, secret) in values.items()}


def _hide_paths(record: logging.LogRecord) -> bool:
    """Have httpx2 log our requests with addresses as they may be shown: a path may hold a token."""

    def shown(address: re.Match[str]) -> str:
        return shown_url(address[0]) if urlsplit(address[0]).netloc in _hosts else address[0]

    record.msg, record.args = re.sub(r"https?://[^\s\"']+", shown, record.getMessage()), ()
    return True


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates to trust, SSL_CERT_FILE included; read once, because reading takes longer than a request."""
    return httpx2.create_ssl_context()
