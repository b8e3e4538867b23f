"""HTTP to one endpoint: one request, bounded in time and size, and what it means when no answer comes.

Imported when the first request is made, because aiohttp takes a fifth of a second to import.
"""

from __future__ import annotations

import errno
import os
import ssl
import sys
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import truststore

from pytest_spiral.models.attempt import Answer, AttemptError, refused
from pytest_spiral.models.completion import read_error
from pytest_spiral.models.endpoint import Endpoint, env_name
from pytest_spiral.status import ReasonCode

# Longer than three lost SYN packets take to be sent again (1 + 2 + 4 s).
_CONNECT_SECONDS = 10.0
# Many servers close a connection that was idle for five seconds; a request on one that they just closed would be lost.
_KEEPALIVE_SECONDS = 4.0
# Error bodies are quoted in 300 characters; a proxy's error page is no reason to read megabytes.
_MAX_ERROR_BODY = 64 * 2**10


class HttpClient:
    """Connections to one endpoint. Belongs to the event loop in which it is made.

    Raises `ValueError` or `OSError` where proxies or certificates of the environment cannot be used.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        # Sent with each request: headers of the session would go to a proxy too.
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        self._headers["User-Agent"] = "pytest-spiral"
        if endpoint.api_key:
            self._headers["Authorization"] = f"Bearer {endpoint.api_key.reveal()}"
        self._session = aiohttp.ClientSession(
            # No limit: the limiter decides how many requests are in flight.
            connector=aiohttp.TCPConnector(limit=0, ssl=_trusted(), keepalive_timeout=_KEEPALIVE_SECONDS),
            # One request must not depend on another's answer.
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=endpoint.attempt_timeout, sock_connect=_CONNECT_SECONDS),
            proxy=_proxy(endpoint),
        )

    async def request(self, path: str, content: bytes | None = None) -> Answer:
        """The answer to a POST of `content`, or to a GET without it, if its status is a success.

        Raises:
            AttemptError: Everything else. No exception that holds the API key is chained to it.
        """
        endpoint = self._endpoint
        try:
            answer = await self._exchange(path, content)
        except Exception as error:  # whatever aiohttp raises
            failed = _unanswered(endpoint, error)
        else:
            if 200 <= answer.status < 300:
                if len(answer.body) <= endpoint.max_body:
                    return answer
                message = f"an answer of more than {endpoint.max_body} bytes"
                failed = AttemptError(ReasonCode.BAD_RESPONSE, message, again=True, billed=True)
            else:
                failed = refused(endpoint, answer.status, read_error(answer.body, answer.content_type), answer.headers)
        # Raised out here, so that the caught exception is not chained to it.
        raise failed

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _exchange(self, path: str, content: bytes | None) -> Answer:
        """The answer, of whatever status, with the beginning of its body: at most a chunk beyond what is allowed."""
        method = "GET" if content is None else "POST"
        url = f"{self._endpoint.base_url}{path}"
        async with self._session.request(
            method, url, data=content, headers=self._headers, allow_redirects=False
        ) as response:
            longest = self._endpoint.max_body if response.ok else _MAX_ERROR_BODY
            body = bytearray()
            try:
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) > longest:
                        break
            except aiohttp.ClientError:
                # An error's status says enough; a broken body must not hide it.
                if response.ok:
                    raise
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, headers, bytes(body))


def _unanswered(endpoint: Endpoint, error: Exception) -> AttemptError:
    """What an exception of the HTTP client means: no answer, or none that is complete."""
    code = ReasonCode.UNREACHABLE
    remedy = f"check {env_name(endpoint.role, 'BASE_URL')} and that the server is running"
    match error:
        case aiohttp.ConnectionTimeoutError():
            message = f"no connection within {_CONNECT_SECONDS:g} s"
            return AttemptError(ReasonCode.TIMEOUT, message, again=True, remedy=remedy)
        case TimeoutError():
            message = f"no answer within {endpoint.attempt_timeout:g} s"
            return AttemptError(ReasonCode.TIMEOUT, message, again=True, billed=True)
        case aiohttp.ClientSSLError() | ssl.SSLError():
            return AttemptError(code, f"TLS failed ({endpoint.clean(str(error))})", remedy=remedy)
        case aiohttp.ClientConnectorDNSError():
            return AttemptError(code, "host name not found", again=True, remedy=remedy)
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return AttemptError(code, "connection refused", again=True, remedy=remedy)
        case (
            aiohttp.ServerDisconnectedError()
            | aiohttp.ClientPayloadError()
            | ConnectionResetError()
            | OSError(errno=errno.ECONNRESET | errno.EPIPE)
        ):
            return AttemptError(code, "connection lost before the answer was complete", again=True, billed=True)
    again = isinstance(error, OSError | aiohttp.ClientConnectionError)
    message = endpoint.clean(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return AttemptError(code, message, again=again, remedy=remedy, billed=True)


def _proxy(endpoint: Endpoint) -> str | None:
    """The proxy that the environment names for an endpoint, None for this machine's loopback: it cannot reach that."""
    parts = urlsplit(endpoint.base_url)
    if endpoint.is_loopback or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    scheme, _, rest = proxy.rpartition("://")
    if scheme not in ("", "http", "https"):
        raise ValueError(f"a {scheme} proxy, where only http and https are supported")
    return f"{scheme or 'http'}://{rest}" if rest else None


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates to trust: SSL_CERT_FILE and SSL_CERT_DIR, or the system's. Read once: it takes long."""
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    if file or folder or sys.platform == "linux":
        return ssl.create_default_context(cafile=file, capath=folder)
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
