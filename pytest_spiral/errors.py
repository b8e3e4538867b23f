"""Every error this package raises on purpose, as one tree.

SpiralError
├── UserError                 the caller can mend it: exit code 4, one sentence with the remedy, no traceback
│   ├── ConfigError           an option, ini key, environment variable or spiral.toml entry
│   ├── DataError             a scenario, prompt, rubric or lexicon file (names file, index, key)
│   └── StoreError            the run folder or its database cannot be used
└── ChatError                 one model call failed for good (an instrument failure, never a score)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytest_spiral.status import Status

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = [
    "ChatError",
    "ChatErrorKind",
    "ConfigError",
    "DataError",
    "SpiralError",
    "StoreError",
    "UserError",
    "first_fault",
]


class SpiralError(Exception):
    """Base of all errors raised on purpose by this package."""


class UserError(SpiralError):
    """Something the caller can mend. The message says what, where and how."""


class ConfigError(UserError):
    """An option, ini key, environment variable or spiral.toml entry is wrong."""


class DataError(UserError):
    """A data file is wrong. The message names file, index and key."""


class StoreError(UserError):
    """The run folder or its database cannot be used."""


def first_fault(error: ValidationError, whole: str = "file") -> str:
    """What a model found first in a value, as `key: what is wrong`. whole: what a fault without a key is in."""
    fault = error.errors()[0]
    key = ".".join(str(part) for part in fault["loc"]) or whole
    message = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = "unknown key; remove it or check its spelling"
    elif fault["type"] == "missing":
        message = "missing key"
    return f"{key}: {message}"


ChatErrorKind = Literal[
    "unreachable",  # refused, DNS, reset, TLS
    "timeout",  # the per-call deadline ran out
    "rate_limited",  # 429 after all retries
    "quota",  # 429 insufficient_quota or 402: no retry can help
    "auth",  # 401, 403
    "bad_request",  # 400, 404, 405, 413, 422: the request itself is refused
    "server_error",  # 5xx after all retries
    "bad_response",  # a 200 that is no chat completion (HTML, broken JSON, no choices)
    "closed",  # the run is being stopped
    "budget",  # it might cost more than --max-cost leaves; nothing was sent
]


class ChatError(SpiralError):
    """A model call that failed for good.

    kind: class of failure, see `ChatErrorKind`.
    attempts: HTTP requests made, retries included.
    status: HTTP status of the last answer, None where none arrived.
    """

    def __init__(self, kind: ChatErrorKind, message: str, *, attempts: int = 1, status: int | None = None) -> None:
        super().__init__(message)
        self.kind: ChatErrorKind = kind
        self.attempts = attempts
        self.status = status

    @property
    def leaves(self) -> Status:
        """What becomes of the unit that needed the call."""
        return Status.NOT_RUN if self.kind == "budget" else Status.INSTRUMENT_FAILED

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_chat_error, (self.kind, str(self), self.attempts, self.status))


def _rebuild_chat_error(kind: ChatErrorKind, message: str, attempts: int, status: int | None) -> ChatError:
    return ChatError(kind, message, attempts=attempts, status=status)
