"""Records of gate decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict

from pytest_spiral.stats import ClusterUnit

__all__ = ["Decision", "DecisionCode", "DecisionReason", "JudgeStanding", "Outcome", "Policy", "Standing"]

Outcome = Literal["pass", "fail", "inconclusive", "incomplete"]
Policy = Literal["bound", "point"]
"""What is compared with the threshold: one-sided 95 % bounds or the point estimate."""
Standing = Literal["calibrated", "uncalibrated", "below_bar"]


class DecisionCode(StrEnum):
    """Why a gate has its outcome. Stable: other programs may rely on the values.

    Attributes:
        BOUND_MET: The bound on the unfavourable side of the value still meets the threshold.
        BOUND_MISSED: Even the bound on the favourable side misses it.
        THRESHOLD_BETWEEN: The threshold lies between the bounds.
        POINT_ESTIMATE: The point estimate was compared, as --gate-policy asks.
        MISSING_DECIDES: Missing measurements could change the outcome.
        WORST_CASE_UNKNOWN: Measurements are missing, and the metric has no defined worst case.
        NOTHING_MEASURED: There is no measurement.
        TOO_MUCH_MISSING: More is missing than the limit allows.
        JUDGE_BELOW_BAR: The judge is not reliable enough on this behaviour.
    """

    BOUND_MET = "bound_met"
    BOUND_MISSED = "bound_missed"
    THRESHOLD_BETWEEN = "threshold_between"
    POINT_ESTIMATE = "point_estimate"
    MISSING_DECIDES = "missing_decides"
    WORST_CASE_UNKNOWN = "worst_case_unknown"
    NOTHING_MEASURED = "nothing_measured"
    TOO_MUCH_MISSING = "too_much_missing"
    JUDGE_BELOW_BAR = "judge_below_bar"


@dataclass(frozen=True, slots=True)
class DecisionReason:
    """Why a gate has its outcome: `code` for programs, `detail` for people, with the numbers."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    code: DecisionCode
    detail: str = ""


@dataclass(frozen=True, slots=True)
class JudgeStanding:
    """Whether the judge of a behaviour is reliable enough for a gate; `detail` says what it lacks."""

    standing: Standing
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a gate on one card or score.

    Attributes:
        value: The metric; for a relative gate candidate minus baseline. None where nothing was measured.
        low, high: One-sided 95 % bounds of `value`, computed by `method`.
        worst_case: Outcome with everything missing at its worst; None where that is unknown.
        best_case: Outcome with everything missing at its best.
        mde: How far beyond the threshold the true value must lie for the gate to pass in four of five such runs; None
            where it never would.
        n: Independent units, of the kind `unit`.
        candidate, baseline: For a relative gate the two values on the common units.
        judge: For a gate on a judged behaviour what is known about the judge.
    """

    outcome: Outcome
    reason: DecisionReason
    value: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    worst_case: Outcome | None = None
    best_case: Outcome | None = None
    mde: float | None = None
    n: int = 0
    unit: ClusterUnit = "scenario"
    candidate: float | None = None
    baseline: float | None = None
    judge: Standing | None = None
