"""What the report says about the judges: agreement, health, calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_spiral.report.model.base import Rate, Record
from pytest_spiral.report.model.gate import Standing
from pytest_spiral.stats import Interval
from pytest_spiral.tables import Count

LabelledBy = Literal["people", "model raters", "mixed", "unknown"]
"""Whose labels something is measured against."""


class Estimate(Record):
    """An estimate with its two-sided 95 % interval: rates in 0..1, agreement in -1..1."""

    value: float
    low: Annotated[float, Field(ge=-1)]
    high: Annotated[float, Field(le=1)]

    @model_validator(mode="after")
    def _in_order(self) -> Estimate:
        if not self.low <= self.value <= self.high:
            raise ValueError("low <= value <= high must hold")
        return self


class Agreement(Record):
    """Agreement of several judges or raters on one behaviour, as Krippendorff's alpha."""

    turns: Count
    """Turns rated by at least two."""
    presence: Annotated[float, Field(le=1)] | None
    """Nominal alpha; null where only one value occurs."""
    presence_interval: Interval | None
    strength: Annotated[float, Field(le=1)] | None
    """Ordinal alpha over 0..3; null where only one value occurs."""
    strength_interval: Interval | None
    prevalence: Mapping[str, float | None]
    """Share of turns in which each of them reported the behaviour."""
    majority: Rate | None = None
    """Share of quoted places at which more than half of the judges have a finding; null for raters and without any."""


class RetestResult(Record):
    """How often a judge changed its mind on chunks that it judged twice."""

    chunks: Count
    cells: Count
    """Behaviours of those chunks."""
    flips: Count
    """Cells in which a behaviour appeared or disappeared."""
    rate: Rate | None
    interval: Interval | None
    unread: Count
    """Chunks of which one judgement could not be read."""


class Retests(Record):
    """Retests by way of asking; null where none were made."""

    again: RetestResult | None
    reordered: RetestResult | None
    """With the behaviours in another order."""


class JudgedTurns(Record):
    """How often a judge judged the turns it was given."""

    turns: Count
    once: Count
    never: Count
    more_than_once: Count
    unexpected: Count
    """Judged turns that were not to be judged."""


class JudgeHealth(Record):
    """What one judge did over all conversations of a model."""

    chunks: Count
    refused: Count
    unreadable: Count
    unanswered: Count
    empty: Count
    """Readable judgements without a finding, which are measurements."""
    findings: Count
    unlocated: Count
    """Findings whose quote is not in the reply."""
    of_user: Count
    """Unlocated findings that quote the user."""
    echoes: Count
    """Located quotes that repeat the user."""
    finals: Count
    """Readable final judgements."""
    repairs: Mapping[str, Count] = {}
    """Judgements in whose replies something had to be overlooked: `fence` or `words_around` the object, a behaviour's
    `name` in another spelling, a `number` as a string or with a point."""
    silent: bool
    """Nothing found in many chunks."""
    constant: bool
    """The same final scores for many conversations."""
    ledger: JudgedTurns


class JudgeReport(JudgeHealth):
    """One judge, with what the score is without the others and without it."""

    score_alone: float | None
    """The composite by this judge alone; null for a single judge."""
    score_without: float | None
    """The composite by the other judges; null for a single judge."""
    retest: Retests


class Suspected(Record):
    """Replies with passages that may address the judge or the simulated user."""

    turns: Count
    conversations: Count


class JudgesHealth(Record):
    """What is wrong with the judges of a score."""

    faults: tuple[str, ...]
    """These block publication."""
    no_verdict: tuple[str, ...]
    """These also rule out a verdict."""
    warnings: tuple[str, ...]
    suspected: Suspected | None
    """Null where it could not be computed."""


class TurnRate(Record):
    """Share of judged turns with a behaviour, as reported and corrected for the judge's errors (Rogan, Gladen 1978)."""

    rate: Rate | None
    corrected: Rate | None
    low: Rate | None
    high: Rate | None


class BehaviourCalibration(Record):
    """A judge on one behaviour, against labelled turns."""

    n: Count
    """Labelled conversations."""
    positives: Count
    negatives: Count
    sensitivity: Estimate | None
    specificity: Estimate | None
    kappa: Estimate | None
    """Cohen's kappa on presence; null where only one class occurs."""


class BehaviourStanding(BehaviourCalibration):
    """The same with what follows from it in this run."""

    strength: Estimate | None
    """Quadratic-weighted kappa on strengths 0..3."""
    standing: Standing
    reason: str
    raters_agreement: Agreement | None
    turn_rate: TurnRate | None


class KindCount(Record):
    """Labelled turns of one kind, and those on which the judge reported a behaviour that is absent."""

    turns: Count
    false_alarms: Count


class Drift(Record):
    """Change since the last calibration of the same judge on the same labels."""

    comparable: bool
    changed: Rate | None
    """Labels that changed."""
    kappa: Mapping[str, float]
    """Change of kappa by behaviour."""
    drifted: tuple[str, ...]
    """Behaviours whose kappa lies outside its earlier interval, and the earlier one outside the present."""


class CalibrationReport(Record):
    """A judge on the labelled turns, calibrated within this run."""

    labels: str
    turns: Count
    unread: Count
    """Turns without a readable judgement, counted as wrong."""
    raters: Mapping[str, str]
    """Name and kind of everybody who labelled."""
    whose: LabelledBy = "unknown"
    """Whose labels they are; "unknown" in earlier reports."""
    disagreements: Count
    kinds: Mapping[str, KindCount]
    behaviours: Mapping[str, BehaviourStanding]
    drift: Drift | None


class JudgesReport(Record):
    """All judges of a score."""

    agreement: Mapping[str, Agreement] | None
    """By behaviour; null for a single judge."""
    per_judge: Mapping[str, JudgeReport]
    health: JudgesHealth
    calibration: Mapping[str, CalibrationReport] | None
    """By judge; null where none was made."""
