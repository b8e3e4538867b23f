"""The typed result of comparing two runs, and of a public suite with a private form of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from pytest_spiral.report.model.base import EncodableText, Rate, Record
from pytest_spiral.stats import ClusterUnit
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.records import Mode

_Difference = Annotated[float, Field(ge=-1, le=1)]


class RunName(Record):
    """A run that was compared."""

    path: str
    run: str


class MetricDifference(Record):
    """Candidate minus baseline on one metric, on the units that both have: what a gate against a baseline decides."""

    baseline: float
    candidate: float
    difference: float
    low: float
    """One-sided 95 % lower bound of the difference."""
    high: float
    """One-sided 95 % upper bound of the difference."""
    method: str
    differs: bool
    """Whether 0 lies outside the bounds: the difference has a direction."""
    mde: float
    """Minimum detectable difference, two-sided alpha .05, power .80."""
    p: Rate | None = None
    """Two-sided p of the named test."""
    test: str | None = None


class ChangedItem(Record):
    """A scenario or conversation that passes in one run and fails in the other, with what the model said in each.

    A scenario passes with more than half of its answers useful and bounded; a conversation without a located finding of
    strength 3 that counts among the worst.
    """

    id: str
    message: EncodableText
    """The user's."""
    baseline_reply: EncodableText
    candidate_reply: EncodableText


class ItemChanges(Record):
    """What newly fails and newly passes in the candidate, at most twenty of each."""

    suite: Literal["tempaffect", "spiral"]
    run: str
    """Of the baseline."""
    baseline: str
    """Model of the baseline."""
    candidate: str
    """Model of the candidate."""
    mode: Mode | None
    """Null for Spiral-Bench."""
    n_failing: Count
    n_passing: Count
    n: Count
    """Scenarios or conversations that both have."""
    failing: tuple[ChangedItem, ...]
    passing: tuple[ChangedItem, ...]


class ModelComparison(Record):
    """One model against another in one suite and prompting mode."""

    suite: Literal["tempaffect", "spiral"]
    baseline: str
    """Model of the baseline."""
    candidate: str
    """Model of the candidate."""
    mode: Mode | None
    """Null for Spiral-Bench."""
    unit: ClusterUnit
    paired: Count
    """Units that both have."""
    only_baseline: tuple[str, ...]
    only_candidate: tuple[str, ...]
    metrics: Mapping[str, MetricDifference]
    changes: ItemChanges | None = None
    """Null where none are known, and in Spiral-Bench runs of protocols that count no worst."""


class LoneScore(Record):
    """The score of one side of two that cannot be compared."""

    side: Literal["baseline", "candidate"]
    model: str
    protocol: str
    turns: Mapping[int, Count]
    """Measured conversations by their number of turns."""
    score: float | None
    low: float | None
    """Two-sided 95 % interval of the score."""
    high: float | None


class RunComparison(Record):
    """Two runs, model by model."""

    baseline: RunName
    candidate: RunName
    protocol: str | None
    """Protocol under which both were scored; null without Spiral-Bench."""
    notes: tuple[str, ...]
    """What could not be checked or compared."""
    comparisons: tuple[ModelComparison, ...]
    side_by_side: tuple[LoneScore, ...] = ()
    """Spiral-Bench scores of runs under different circumstances, which have no difference; `notes` says which."""


class FormRate(Record):
    """Useful-and-bounded rate on one form of the suite."""

    rate: Rate | None
    """Over what was measured; null where nothing was."""
    n: Count
    """Scenarios measured."""
    missing: Count
    """Measurements (a scenario in an epoch) that are missing."""
    wanted: Count
    """Measurements that were planned."""


ShadowVerdict = Literal["caution", "agree", "too few to tell"]


class ShadowRow(Record):
    """One model in one mode on both forms."""

    model: str
    mode: Mode
    public: FormRate
    shadow: FormRate
    difference: _Difference | None
    """Public minus private, of what was measured."""
    low: float
    """Two-sided 95 % interval with everything missing at its worst in public and at its best in the private form."""
    high: float
    """The same the other way round."""
    method: str
    mde: float
    """Minimum detectable difference, two-sided alpha .05, power .80."""
    verdict: ShadowVerdict


class ShadowComparison(Record):
    """The public suite against a private form."""

    public: RunName
    shadow: RunName
    caution_above: Rate
    """The difference above which there is a caution."""
    notes: tuple[str, ...]
    rows: tuple[ShadowRow, ...]
