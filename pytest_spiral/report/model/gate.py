"""Gates as decided, and the verdict."""

from __future__ import annotations

from typing import Literal

from pytest_spiral.gates.records import DecisionReason, Outcome, Policy, Standing
from pytest_spiral.report.model.base import Count, Record
from pytest_spiral.stats import ClusterUnit
from pytest_spiral.tempaffect.records import CardMode

Verdict = Literal["pass", "fail", "inconclusive", "incomplete", "measured"]
"""`measured`: no gate was given, and no more is missing than the limit allows."""


class BaselineValue(Record):
    """The two values whose difference a relative gate decides."""

    run: str
    model: str
    value: float | None
    """The metric in the baseline."""
    own: float | None
    """The metric in this run, on the same units."""


class GateRow(Record):
    """One gate on one card or one score."""

    expr: str
    model: str
    prompting_mode: CardMode | None
    """Null for a Spiral-Bench gate."""
    metric: str
    """Path of the metric, suite first."""
    value: float | None
    """The metric, or its difference to the baseline; null where nothing was measured."""
    ci_low: float | None
    """One-sided 95 % lower bound of the value."""
    ci_high: float | None
    """One-sided 95 % upper bound of the value."""
    method: str
    threshold: float
    at_least: bool
    """Whether the threshold is the least value that passes; otherwise it is the greatest."""
    policy: Policy
    outcome: Outcome
    mde: float | None
    """How far beyond the threshold the truth must lie for the gate to pass in four of five such runs."""
    worst_case: Outcome | None
    """The outcome if everything missing were as bad as possible."""
    best_case: Outcome | None
    """The outcome if everything missing were as good as possible."""
    reason: DecisionReason
    """Why the gate has this outcome."""
    n: Count
    """Independent units."""
    unit: ClusterUnit
    calibration: Standing | None
    """What is known of the judge, for a gate on one judged behaviour."""
    baseline: BaselineValue | None
