"""What the judges of a run said about the anchors: fixed turns that tell whether a judge has changed between runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from pytest_spiral.report.model.base import Hash, Record
from pytest_spiral.status import ReasonCode
from pytest_spiral.tables import Count

Vector = Mapping[str, Annotated[int, Field(ge=1, le=3)]]
"""Of one judgement of one turn, the highest strength by behaviour, and marks of the user's message; zeros left out."""


class JudgeAnchors(Record):
    """One judge on the anchors, each judged twice."""

    judged_at: str
    """Time of the last judgement, ISO 8601 in UTC; empty for a built-in judge."""
    passes: tuple[Mapping[str, Vector], Mapping[str, Vector]]
    """By turn id, once as every turn is judged and once more; without judgements that failed."""
    answered: Count
    """Anchors with two readable judgements."""
    failures: Mapping[ReasonCode, Count]
    noise: float | None
    """Mean distance of the two judgements of an anchor, in points of strength; null without any."""


class Anchors(Record):
    """The anchors of a run and what its judges said about them."""

    rubric: str
    hash: Hash
    """Of the turns."""
    of: Count
    """Anchors."""
    judges: Mapping[str, JudgeAnchors]
