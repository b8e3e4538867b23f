"""What went wrong with one HTTP request, and whether trying again can help.

Errors of the HTTP client hold the request and, with it, the API key. They are turned into `AttemptError` here, and
nothing of them but a cleaned message is kept.
"""

from __future__ import annotations

import email.utils
import math
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass

from pytest_spiral.models.completion import ErrorBody
from pytest_spiral.models.endpoint import Endpoint, shown_url
from pytest_spiral.models.providers import ErrorRule, error_rules
from pytest_spiral.models.refusals import refuses_schemas
from pytest_spiral.status import ReasonCode

# Longer than three lost SYN packets take to be sent again (1 + 2 + 4 s).
CONNECT_SECONDS = 10.0
_OTHER = ErrorRule(status=(400,), means=ReasonCode.BAD_REQUEST, remedy="check the model's parameters in spiral.toml")
_PASSING = (ReasonCode.RATE_LIMITED, ReasonCode.SERVER_ERROR, ReasonCode.TIMEOUT)
# Exceptions of aiohttp and httpx for answers that break HTTP, end too soon or cannot be decompressed.
_GARBLED = frozenset({"HttpProcessingError", "ClientPayloadError", "DecodingError"})
_SCHEMA_REMEDY = (
    "this endpoint does not take strict JSON schemas (response_format json_schema); "
    "use one that does, or plain prompting (--prompting raw)"
)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One HTTP answer. Headers are found under their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(eq=False)
class AttemptError(Exception):
    """One HTTP request that failed.

    Attributes:
        message: A clause for the error message.
        status: HTTP status, None where no answer came.
        again: Whether another attempt may succeed.
        retry_after: Seconds that the endpoint asks to wait.
        remedy: What the user can do, "" where nothing is known.
        billed: Whether the endpoint may have answered, and charged for it, all the same.
        said: What the endpoint answered instead of a completion, without keys.
    """

    code: ReasonCode
    message: str
    _: KW_ONLY
    status: int | None = None
    again: bool = False
    retry_after: float | None = None
    remedy: str = ""
    billed: bool = False
    said: ErrorBody | None = None

    def __str__(self) -> str:
        return self.message

    @property
    def is_unusable(self) -> bool:
        """Whether an answer came that is none. That says little about the next one, and nothing about an outage."""
        return self.code in (ReasonCode.BAD_RESPONSE, ReasonCode.UNFINISHED)


def refused(endpoint: Endpoint, status: int, error: ErrorBody, headers: Mapping[str, str]) -> AttemptError:
    """What an error status means. A redirect counts as a wrong address: following it could lead a key elsewhere."""
    message = endpoint.clean(error.message)
    says = f"HTTP {status}" + (f" ({message})" if message else "")
    said_by = error.code, error.message.lower()
    own = endpoint.provider.rule(status, *said_by)
    rule = own or next((each for each in error_rules() if each.fits(min(status, 500), *said_by)), _OTHER)
    means = rule.means
    remedy = rule.remedy or next((each.remedy for each in error_rules() if each.means is means), "")
    if means is ReasonCode.AUTH and not endpoint.api_key:
        remedy = "no key was sent: paste this line into .env, followed by the key: {key}="
    elif own is None and status in (400, 422) and refuses_schemas(" ".join(said_by)):
        remedy = _SCHEMA_REMEDY
    elif status < 400:
        target = endpoint.clean(shown_url(headers.get("location", "")), limit=120)
        remedy = f"it redirects{f' to {target}' if target else ''}; set {{url}} to the final address"
    remedy = remedy.replace("{key}", endpoint.key_name).replace("{url}", endpoint.url_name)
    if means in _PASSING:
        wait = _retry_after(headers, error.retry_after)
        return AttemptError(means, says, status=status, again=True, retry_after=wait, remedy=remedy)
    said = None
    if means not in (ReasonCode.AUTH, ReasonCode.QUOTA):
        message, codes, param = (endpoint.clean(part, limit=2_000) for part in (error.message, error.code, error.param))
        said = ErrorBody(message, codes, param=param)
    return AttemptError(means, says, status=status, remedy=remedy, said=said)


def unreachable(endpoint: Endpoint, error: Exception) -> AttemptError:
    """What an exception of the HTTP client means: no answer, or none that is complete."""
    code = ReasonCode.UNREACHABLE
    remedy = f"check {endpoint.url_name} and that the server is running"
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
    if any(isinstance(c, ConnectionResetError | BrokenPipeError) or "Disconnected" in type(c).__name__ for c in chain):
        return AttemptError(code, "connection lost before the answer was complete", again=True, billed=True)
    root = chain[-1]
    if any(each.__name__ in _GARBLED for cause in chain for each in type(cause).__mro__):
        message = f"an answer that is cut or garbled ({endpoint.clean(str(root), limit=120)})"
        return AttemptError(ReasonCode.BAD_RESPONSE, message, again=True, billed=True)
    if any(isinstance(cause, TimeoutError) for cause in chain):
        message = f"no connection within {CONNECT_SECONDS:g} s"
        return AttemptError(ReasonCode.TIMEOUT, message, again=True, remedy=remedy)
    message = f"{type(root).__name__}: {root}" if str(root) else type(root).__name__
    known = isinstance(root, OSError) or any(each.__name__ == "RequestError" for each in type(error).__mro__)
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


def _retry_after(headers: Mapping[str, str], said: float | None) -> float | None:
    """Seconds that the endpoint asks to wait: `retry-after-ms`, `retry-after` in seconds or as an HTTP date, or `said`
    in the body."""
    value = headers.get("retry-after", "")
    readings: tuple[Callable[[], float], ...] = (
        lambda: float(headers["retry-after-ms"]) / 1000,
        lambda: float(value),
        # By the endpoint's own clock where it tells the time.
        lambda: _date(value) - _date(headers["date"]),
        lambda: _date(value) - time.time(),
    )
    for reading in readings:
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            seconds = reading()
            return said if math.isnan(seconds) else max(0.0, seconds)
    return said


def _date(value: str) -> float:
    return email.utils.parsedate_to_datetime(value).timestamp()
