"""Every error this package raises on purpose, as one tree.

SpiralError
├── UserError                 the caller can fix it: exit code 4, one sentence with the remedy, no traceback
│   ├── ConfigError           an option, ini key, environment variable or spiral.toml entry
│   ├── DataError             a scenario, prompt, rubric or lexicon file (names file, index, key)
│   └── StoreError            the run directory or its database cannot be used
│       └── LostStoreError    it was deleted or replaced while the run was under way: exit code 3
└── ChatError                 one model call failed for good (an instrument failure, never a score)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_spiral.status import Reason, ReasonCode, Status

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


class SpiralError(Exception):
    """Base of all errors raised on purpose by this package."""


class UserError(SpiralError):
    """Something the caller can fix. The message says what is wrong, where, and what to do."""

    def __str__(self) -> str:
        """The message. It may quote files, so what a terminal would act on is escaped."""
        text = super().__str__()
        return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class ConfigError(UserError):
    """An option, ini key, environment variable or spiral.toml entry is wrong.

    Attributes:
        replaced: Values on the command line that are wrong, each with the option that mends it.
    """

    def __init__(self, message: str, replaced: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.replaced = replaced


class DataError(UserError):
    """A data file is wrong. The message names file, index and key."""


class StoreError(UserError):
    """The run directory or its database cannot be used."""


class LostStoreError(StoreError):
    """The run directory or its database was deleted or replaced while the run was under way."""


# What pydantic calls the type of a value that has another one.
_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "an object",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "an object",
    "string_type": "a string",
    "tuple_type": "a list",
}
# Where values are converted, a value of another type is one that could not be read as this one.
_PARSED = re.compile("_(parsing|from_float)$")


def first_fault(error: ValidationError, whole: str = "file") -> str:
    """The first problem that pydantic found, as `key: what is wrong`.

    Args:
        whole: What to name where the problem is not in a single key.
    """
    problem = error.errors()[0]
    return f"{key_path(problem['loc']) or whole}: {fault_words(problem)}"


def fault_words(problem: ErrorDetails) -> str:
    """What is wrong with one value, in our words."""
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        message = "unknown key; remove it or check its spelling"
    elif problem["type"] == "missing":
        message = "missing key"
    elif (kind := _PARSED.sub("_type", problem["type"])) in _EXPECTED:
        message = f"expected {_EXPECTED[kind]}, got {type(problem['input']).__name__}"
    elif "max_length" in problem.get("ctx", {}):
        value = problem["input"]
        unit = "characters" if isinstance(value, str) else "keys" if isinstance(value, dict) else "entries"
        message = f"{len(value):,} {unit}, the limit is {problem['ctx']['max_length']:,}"
    return re.sub("^Input should be (?=(greater|less) )", "expected a number ", message).replace(
        "Input should be", "expected"
    )


def key_path(keys: Iterable[object]) -> str:
    """The place of a value in a file, whose keys may be any text of any length."""
    parts = (str(key)[:80] for key in keys)
    return ".".join(part if part.isprintable() else ascii(part) for part in parts)


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """What an endpoint does not accept about a request.

    Attributes:
        parameter: A request parameter; "model" or "response_format" for those that are no parameters here.
        instead: The name that it wants for the parameter, "" where it says none.
        most: The highest value that it accepts, None where it says none.
        allowed: The values that it accepts, as far as it lists them.
    """

    parameter: str
    instead: str = ""
    most: int | None = None
    allowed: tuple[str, ...] = ()


class ChatError(SpiralError):
    """A model call that failed for good.

    Attributes:
        code: Why it failed.
        attempts: HTTP requests made, retries included.
        http_status: HTTP status of the last answer, None where none arrived.
        refusal: What the endpoint refused, None where that is not known.
    """

    def __init__(self, code: ReasonCode, message: str, *, attempts: int = 1, http_status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.attempts = attempts
        self.http_status = http_status
        self.refusal: RefusedRequest | None = None

    @property
    def unit_status(self) -> Status:
        """State of the scenario or conversation that needed the call."""
        return Status.NOT_RUN if self.code is ReasonCode.BUDGET else Status.INSTRUMENT_FAILED

    def reason(self, where: str = "") -> Reason:
        """The error as the reason of a unit without a measurement. where: role and turn, if any."""
        return Reason(self.code, f"{where}: {self}" if where else str(self))
