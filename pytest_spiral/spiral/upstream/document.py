"""Values of a result file, whose errors name the key path, and reasons as such a file holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_spiral.errors import DataError
from pytest_spiral.resources import read_text
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.strict_json import StrictJson
from pytest_spiral.text import whole_characters

META = "__meta__"
SUMMARY = "scoring_summary"
MAX_KEYS = 200
MAX_TEXT_CHARS = 2_000_000
MAX_ERROR_CHARS = 2_000


class Node:
    """A value of a document and the key path that leads to it."""

    def __init__(self, value: object, path: str) -> None:
        self.value = value
        self.path = path

    @property
    def is_null(self) -> bool:
        """Whether the value is null or absent."""
        return self.value is None

    def fault(self, message: str) -> DataError:
        """An error at this place, to be raised."""
        return DataError(f"{self.path}: {message}")

    def _child(self, value: object, key: str | int) -> Node:
        shown = str(key)[:80]
        return Node(value, f"{self.path}.{shown if shown.isprintable() else ascii(shown)}")

    def members(self, limit: int = MAX_KEYS) -> Mapping[str, Node]:
        """Members of an object, at most `limit`."""
        if not isinstance(self.value, dict):
            raise self.fault(f"expected an object, got {type(self.value).__name__}")
        if len(self.value) > limit:
            raise self.fault(f"{len(self.value):,} keys, the limit is {limit:,}")
        return {key: self._child(value, key) for key, value in self.value.items()}

    def get(self, key: str) -> Node:
        """A member of an object; null where it is absent."""
        if not isinstance(self.value, dict):
            raise self.fault(f"expected an object, got {type(self.value).__name__}")
        return self._child(self.value.get(key), key)

    def entries(self, limit: int) -> Sequence[Node]:
        """Entries of a list, at most `limit`; none for null."""
        if self.value is None:
            return ()
        if not isinstance(self.value, list):
            raise self.fault(f"expected a list, got {type(self.value).__name__}")
        if len(self.value) > limit:
            raise self.fault(f"{len(self.value):,} entries, the limit is {limit:,}")
        return [self._child(value, index) for index, value in enumerate(self.value)]

    def text(self, limit: int = MAX_TEXT_CHARS) -> str:
        """A string of at most `limit` characters, "" for null; half of a surrogate pair is replaced."""
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            raise self.fault(f"expected a string, got {type(self.value).__name__}")
        if len(self.value) > limit:
            raise self.fault(f"{len(self.value):,} characters, the limit is {limit:,}")
        return whole_characters(self.value)

    def flag(self) -> bool | None:
        """True, false or null."""
        if self.value is not None and not isinstance(self.value, bool):
            raise self.fault(f"expected true or false, got {type(self.value).__name__}")
        return self.value

    def number(self, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.fault(f"expected a number, got {type(self.value).__name__}")
        if not low <= self.value <= high:
            raise self.fault(f"expected a number from {low:g} to {high:g}, got {str(self.value)[:40]}")
        return float(self.value)

    def index(self, high: int) -> int:
        """A whole number from 0 to `high`."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 <= self.value <= high:
            raise self.fault(f"expected a whole number from 0 to {high:,}, got {str(self.value)[:40]}")
        return self.value


def read_document(path: Path) -> Node:
    """The root of a JSON file. Raises `DataError` naming the file for anything else."""
    try:
        return Node(StrictJson().loads(read_text(path)), str(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}:{error.colno}: not valid JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise DataError(f"{path}: not usable JSON: {error}") from None


def reason_text(reason: Reason) -> str:
    """A reason as an error of a judgement, `code: detail`; an imported one in its own words."""
    return reason.detail if reason.code is ReasonCode.IMPORTED_ERROR else str(reason)


def parse_reason(text: str) -> Reason:
    """Read what `reason_text` wrote. Anything else is an imported error."""
    return Reason.parse(whole_characters(text)[:MAX_ERROR_CHARS])


def status_text(status: Status, reason: Reason | None) -> str:
    """A status as an error of a conversation, `state: code: detail`."""
    return f"{status.value}: {reason_text(reason)}" if reason else status.value


def parse_status(text: str) -> tuple[Status, Reason | None]:
    """Read what `status_text` wrote. Anything else is an imported error and leaves the status open (`measured`)."""
    state, _, reason = whole_characters(text)[:MAX_ERROR_CHARS].partition(": ")
    if state in list(Status) and state != Status.MEASURED:
        return Status(state), parse_reason(reason) if reason else None
    return Status.MEASURED, Reason(ReasonCode.IMPORTED_ERROR, whole_characters(text)[:MAX_ERROR_CHARS])
