"""Gates as decided, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict

from pytest_spiral.report.model.base import Record
from pytest_spiral.stats import ClusterUnit
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.records import CardMode

Outcome = Literal["pass", "fail", "inconclusive", "incomplete"]
Policy = Literal["bound", "point"]
"""What is compared with the threshold: one-sided 95 % bounds or the point estimate."""
Standing = Literal["calibrated", "uncalibrated", "below_bar"]
Verdict = Literal["pass", "fail", "inconclusive", "incomplete", "measured"]
"""`measured`: no gate was given, and no more is missing than the limit allows."""


class DecisionCode(StrEnum):
    """Why a gate has its outcome, as `docs/reference/gates.md` says. Other programs may rely on the values."""

    BOUND_MET = "bound_met"
    BOUND_MISSED = "bound_missed"
    THRESHOLD_BETWEEN = "threshold_between"
    POINT_ESTIMATE = "point_estimate"
    MISSING_DECIDES = "missing_decides"
    WORST_CASE_UNKNOWN = "worst_case_unknown"
    NOTHING_MEASURED = "nothing_measured"
    TOO_MUCH_MISSING = "too_much_missing"
    JUDGE_BELOW_BAR = "judge_below_bar"
    JUDGE_MOVED = "judge_moved"
    NO_FLOOR = "no_floor"
    FEW_LABELS = "few_labels"
    PART_FAILED = "part_failed"


@dataclass(frozen=True, slots=True)
class DecisionReason:
    """Why a gate has its outcome: `code` for programs, `detail` for people, with the numbers."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    code: DecisionCode
    detail: str = ""


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
    n: Count
    """Independent units."""
    unit: ClusterUnit
    calibration: Standing | None
    """What is known of the judge, for a gate on one judged behaviour."""
    baseline: BaselineValue | None
