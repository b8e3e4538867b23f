"""HTTP to one endpoint through openai's client: one request, bounded in time and size.

Imported when the first request is made, because openai and aiohttp take half a second to import.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from urllib.parse import urlsplit

import httpx2
from openai import AsyncOpenAI, DefaultAioHttpClient, Omit, OpenAIError, RequestOptions, Timeout

from pytest_spiral.models.attempt import CONNECT_SECONDS, AttemptError, HttpAnswer, refused, unreachable
from pytest_spiral.models.completion import read_error
from pytest_spiral.models.endpoint import Endpoint, Secret, is_loopback, shown_url
from pytest_spiral.status import ReasonCode

# Error bodies are quoted in 300 characters; a proxy's error page is no reason to read megabytes.
_MAX_ERROR_BODY = 64 * 2**10
# More than any --concurrency: the limiter decides how many requests are in flight. None would mean aiohttp's 100.
_MAX_CONNECTIONS = 10_000
# Headers that openai's client adds to each request beside its default ones.
_ADDED_PER_REQUEST = ("Authorization", "X-Stainless-Retry-Count", "X-Stainless-Read-Timeout")
# Hosts and ports of the endpoints of this process.
_hosts: set[str] = set()


class _ErrorAnswer(OpenAIError):
    """An answer with an error status. openai's client passes its own class of errors on as they are."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class HttpClient:
    """Connections to one endpoint. Belongs to the event loop that makes the requests.

    Raises `ValueError` or `OSError` where proxies or certificates of the environment cannot be used.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        _hosts.add(endpoint.host)
        logging.getLogger("httpx2").addFilter(_hide_paths)
        # The key is a header like any other here, so that none of the environment's stands in for it.
        self._openai = AsyncOpenAI(
            api_key="none",
            base_url=endpoint.base_url,
            http_client=DefaultAioHttpClient(
                # Not with each request, for which openai's client would merge them anew.
                headers=_headers(endpoint),
                # A proxy of the environment cannot reach this machine's loopback.
                trust_env=not is_loopback(endpoint.base_url),
                verify=_trusted(),
                limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
                follow_redirects=False,
                event_hooks={"response": [_raise_error_status]},
            ),
        )
        # They come from variables of the environment that are meant for other programs (OPENAI_ORG_ID,
        # OPENAI_CUSTOM_HEADERS), describe this machine, or stand above; but for the type of a body.
        foreign = (name.lower() for name in (*_ADDED_PER_REQUEST, *self._openai.default_headers))
        # Given with each request, because openai's client takes longer to look up what it was made with.
        self._options: RequestOptions = {
            "headers": {**dict.fromkeys(foreign, Omit()), "content-type": "application/json"},
            "security": {},
            "params": {**endpoint.provider.query, **_revealed(endpoint.query)},
            "max_retries": 0,
            "timeout": Timeout(None, connect=CONNECT_SECONDS),
        }

    async def request(self, path: str, content: bytes | None = None) -> HttpAnswer:
        """The answer to a POST of `content`, or to a GET without it, if its status is a success.

        How long it may take is decided by the caller.

        Raises:
            AttemptError: Everything else. No exception that holds the API key is chained to it.
        """
        try:
            return await self._exchange(path, content)
        except _ErrorAnswer as error:
            answer = error.answer
            failed = refused(self._endpoint, answer.status, read_error(answer.body), answer.headers)
        except AttemptError as error:
            failed = error
        except Exception as error:  # whatever openai, httpx2 and aiohttp raise
            failed = unreachable(self._endpoint, error)
        # Raised out here, so that the caught exception is not chained to it.
        raise failed

    async def close(self) -> None:
        """Close all connections."""
        await self._openai.close()

    async def _exchange(self, path: str, content: bytes | None) -> HttpAnswer:
        # The whole URL, because openai's client takes longer to put a path behind its base URL.
        url = f"{self._endpoint.base_url}{path}"
        # Streamed, because a body that is not streamed is read to its end, however long it is.
        if content is None:
            response = await self._openai.get(url, cast_to=httpx2.Response, options=self._options, stream=True)
        else:
            # Encoded here: openai's encoder cannot write the lone surrogates that models produce.
            response = await self._openai.post(
                url, content=content, cast_to=httpx2.Response, options=self._options, stream=True
            )
        try:
            body = await _read(response, self._endpoint.max_body)
        finally:
            await response.aclose()
        if len(body) > self._endpoint.max_body:
            message = f"an answer of more than {self._endpoint.max_body} bytes"
            raise AttemptError(ReasonCode.BAD_RESPONSE, message, again=True, billed=True)
        return HttpAnswer(response.status_code, response.headers, body)


async def _raise_error_status(response: httpx2.Response) -> None:
    """Read the beginning of an error answer. openai's client would read it to its end, however long it is."""
    if response.is_success:
        return
    body = b""
    with suppress(Exception):  # the status says enough; a broken body must not hide it
        body = (await _read(response, _MAX_ERROR_BODY))[:_MAX_ERROR_BODY]
    raise _ErrorAnswer(HttpAnswer(response.status_code, response.headers, body))


async def _read(response: httpx2.Response, limit: int) -> bytes:
    """The body, or more than `limit` bytes of a longer one."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


def _headers(endpoint: Endpoint) -> dict[str, str]:
    key, provider = endpoint.api_key, endpoint.provider
    # Names of headers have no case, and those that the user gives replace others, the key's included.
    headers = httpx2.Headers({"Accept": "application/json", "User-Agent": "pytest-spiral", **provider.headers})
    if key:
        headers[provider.key_header] = f"{provider.key_prefix}{key.reveal()}"
    headers.update(_revealed(endpoint.headers))
    return dict(headers)


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
