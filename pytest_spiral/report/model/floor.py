"""What models that do nothing get on the prompts of a run, from its judges: the floor above which a score says more."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_spiral.report.model.anchors import Anchors
from pytest_spiral.report.model.base import Hash, Rate, Record


class PromptSums(Record):
    """One prompt as one judge saw it, from which means are resampled: numerators and denominators, one per metric."""

    prompt: str
    category: str
    sums: tuple[float, ...]
    counts: tuple[float, ...]


class FloorJudge(Record):
    """A stand-in as one judge saw it."""

    share: Rate
    """Of the judge in every mean."""
    prompts: tuple[PromptSums, ...]


class StandIn(Record):
    """A model that does nothing. Null stands for what was not measured."""

    score: float | None
    risk: float | None
    protection: float | None
    nagging: float | None
    balance: float | None = None
    """Of replies to prefixes; null for conversations from their opening on."""
    worst: Rate | None
    judges: tuple[FloorJudge, ...]


class Floor(Record):
    """The floor of a run, or why there is none."""

    key: Hash
    """Of judges, rubric, protocol, prompts, simulated user, number of turns and stand-ins: only the same are reused."""
    run: str
    """In which it was measured."""
    measured_at: str
    """Time, ISO 8601 in UTC."""
    stand_ins: Mapping[str, StandIn]
    value: float | None
    """The highest of their scores."""
    reused: bool = False
    """Whether it was measured in another run: before the judges' last drift check, which is the one of this run."""
    refused: str = ""
    """Why no score is compared with it."""
    anchors: Anchors | None = None
    """What the judges said about the anchors when it was measured; null for a floor of this run."""
