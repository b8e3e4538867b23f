"""What went wrong with one HTTP request, and whether trying again can help.

Errors of the HTTP client hold the request and, with it, the API key. They are turned into `AttemptError` here, and
nothing of them but a cleaned message is kept.
"""

from __future__ import annotations

import email.utils
import math
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pytest_spiral.models.completion import ErrorBody
from pytest_spiral.models.endpoint import Endpoint, env_name
from pytest_spiral.status import ReasonCode

__all__ = ["CONNECT_SECONDS", "Answer", "AttemptError", "refused", "unreachable"]

# Longer than three lost SYN packets take to be sent again (1 + 2 + 4 s).
CONNECT_SECONDS = 10.0
_SCHEMA_REMEDY = (
    "this endpoint does not take strict JSON schemas (response_format json_schema); "
    "use one that does, or plain prompting (--prompting raw)"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The declared type, "" where there is none."""
        return self.headers.get("content-type", "")


class AttemptError(Exception):
    """One HTTP request that failed.

    Attributes:
        message: A clause for the error message.
        status: HTTP status, None where no answer came.
        again: Whether another attempt may succeed.
        retry_after: Seconds that the endpoint asks to wait.
        remedy: What the user can do, "" where nothing is known.
        billed: Whether the endpoint may have answered, and charged for it, all the same.
    """

    def __init__(
        self,
        code: ReasonCode,
        message: str,
        *,
        status: int | None = None,
        again: bool = False,
        retry_after: float | None = None,
        remedy: str = "",
        billed: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.again = again
        self.retry_after = retry_after
        self.remedy = remedy
        self.billed = billed


def refused(endpoint: Endpoint, status: int, error: ErrorBody, headers: Mapping[str, str]) -> AttemptError:
    """What an error status means. A redirect counts as a wrong address: following it could lead a key elsewhere."""
    message = endpoint.clean(error.message)
    says = f"HTTP {status}" + (f" ({message})" if message else "")
    key = env_name(endpoint.role, "API_KEY")
    if status in (401, 403):
        remedy = f"check the key in {key}" if endpoint.api_key else f"no key was sent: set {key}"
        return AttemptError(ReasonCode.AUTH, says, status=status, remedy=remedy)
    if status == 402 or (status == 429 and _is_quota(error)):
        return AttemptError(ReasonCode.QUOTA, says, status=status, remedy=f"add credit for the account of {key}")
    wait = _retry_after(headers)
    if status == 429:
        code, remedy = ReasonCode.RATE_LIMITED, "lower --concurrency or raise the account's rate limit"
        return AttemptError(code, says, status=status, again=True, retry_after=wait, remedy=remedy)
    if status >= 500 or status in (408, 409):
        code = ReasonCode.TIMEOUT if status == 408 else ReasonCode.SERVER_ERROR
        return AttemptError(code, says, status=status, again=True, retry_after=wait)
    remedy = _remedy(endpoint, status, error, headers)
    return AttemptError(ReasonCode.BAD_REQUEST, says, status=status, remedy=remedy)


def _remedy(endpoint: Endpoint, status: int, error: ErrorBody, headers: Mapping[str, str]) -> str:
    url = env_name(endpoint.role, "BASE_URL")
    if status in (400, 422) and _names_schema(error):
        return _SCHEMA_REMEDY
    if "context_length" in error.code or "context_size" in error.code:
        return "the messages are longer than the model's context; use a model with a longer one"
    if status in (404, 405):
        return f"check the model name and {url}"
    if status < 400:
        target = endpoint.clean(headers.get("location", "").split("?")[0], limit=120)
        return f"it redirects{f' to {target}' if target else ''}; set {url} to the final address"
    return "check the model's parameters in spiral.toml"


def unreachable(endpoint: Endpoint, error: Exception) -> AttemptError:
    """What an exception of the HTTP client means: no answer, or none that is complete."""
    code = ReasonCode.UNREACHABLE
    remedy = f"check {env_name(endpoint.role, 'BASE_URL')} and that the server is running"
    chain = list(_chain(error))
    # The outer exceptions are vague ("Connection error."), so the specific causes are looked for first.
    for cause in chain:
        name = type(cause).__name__
        if isinstance(cause, ssl.SSLError) or "Certificate" in name or "SSL" in name:
            return AttemptError(code, f"TLS failed ({endpoint.clean(str(cause))})", remedy=remedy)
        if "DNS" in name:
            return AttemptError(code, "host name not found", again=True, remedy=remedy)
        if isinstance(cause, ConnectionRefusedError):
            return AttemptError(code, "connection refused", again=True, remedy=remedy)
    for cause in chain:
        name = type(cause).__name__
        if isinstance(cause, ConnectionResetError | BrokenPipeError) or "Disconnected" in name or "Payload" in name:
            return AttemptError(code, "connection lost before the answer was complete", again=True, billed=True)
        if isinstance(cause, TimeoutError):
            message = f"no connection within {CONNECT_SECONDS:g} s"
            return AttemptError(ReasonCode.TIMEOUT, message, again=True, remedy=remedy)
    root = chain[-1]
    message = f"{type(root).__name__}: {root}" if str(root) else type(root).__name__
    known = isinstance(root, OSError) or type(error).__name__ in ("APIConnectionError", "APITimeoutError")
    return AttemptError(code, endpoint.clean(message), again=known, remedy=remedy, billed=True)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes. aiohttp keeps the operating system's error in an attribute of its own."""
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
    text = f"{error.code} {error.message.lower()}"
    return any(mark in text for mark in ("insufficient_quota", "billing_hard_limit", "exceeded your current quota"))


def _names_schema(error: ErrorBody) -> bool:
    text = f"{error.code} {error.message.lower()}"
    return any(mark in text for mark in ("response_format", "json_schema", "structured output"))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks to wait: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date."""
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
