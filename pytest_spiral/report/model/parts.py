"""Parts of a report that could not be made."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, TypeVar

from pytest_spiral.report.model.base import EncodableText, Record

T = TypeVar("T")


class PartCode(StrEnum):
    """Why a part of the report is not there, as `docs/reference/run-directory.md` says. The values are stable."""

    ERROR = "error"
    TIMEOUT = "timeout"
    NOT_EVALUATED = "not_evaluated"
    NOT_WRITTEN = "not_written"


class FailedPart(Record):
    """A part of the report that could not be made; nothing else is affected."""

    part: str
    """Its place in the report with the model in brackets, or its file, such as `spiral.scores[m]` or `report.html`."""
    code: PartCode
    detail: EncodableText
    """The same for people: the error and where it was raised."""


class Attempt(Protocol):
    """Makes one part of a card or score; None where it fails."""

    def __call__(self, part: str, make: Callable[[], T], /) -> T | None: ...


def directly(_part: str, make: Callable[[], T]) -> T | None:
    """An attempt that lets errors through."""
    return make()
