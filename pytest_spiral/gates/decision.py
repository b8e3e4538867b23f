"""What a gate may conclude: pass, fail or inconclusive, never more than the data can bear. Pure.

One-sided 95 % bounds decide. What is missing counts once as worst and once as best: pass only if the worst case passes,
fail only if the best case fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any, Literal

from pytest_spiral.gates.grammar import Gate
from pytest_spiral.spiral.calibration import Calibration, Standing, standing
from pytest_spiral.stats import (
    Clusters,
    ClusterUnit,
    bca,
    bounded_mean,
    least_passing_rate,
    pair,
    standard_error,
)

__all__ = [
    "Decision",
    "Measured",
    "Outcome",
    "Policy",
    "Sample",
    "compare",
    "conclude",
    "decide",
    "limited",
    "measure",
    "with_calibration",
]

Outcome = Literal["pass", "fail", "inconclusive", "incomplete"]
Policy = Literal["bound", "point"]
End = Literal["low", "high"]
Draws = Callable[[int], Sequence[Sequence[int]]]
# One-sided 95 % bounds are the ends of a two-sided 90 % interval.
TWO_SIDED = 0.90
Z_ONE_SIDED = 1.6449
# Standard errors beyond a bound at which it is cleared in four of five runs: the 80 % point of the normal.
_POWER = 0.8416


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements behind one metric of one card.

    units: what was measured. statistic: from the units' values to the metric.
    scale: ends of the scale where the statistic is the mean of the units' values, None for any other statistic.
    missing: measurements (a scenario in an epoch) that were to be made and were not, of `wanted`.
    fill: the units with everything missing at one end of the scale; None where the statistic has no such ends.
    """

    units: Clusters[Any]
    statistic: Callable[[Sequence[Any]], float]
    scale: tuple[float, float] | None
    missing: int
    wanted: int
    fill: Callable[[End], Clusters[Any]] | None

    @property
    def binary(self) -> bool:
        """Whether every unit is a yes or a no, so that the metric is a rate of single measurements."""
        return self.scale == (0.0, 1.0) and all(value in (0.0, 1.0) for value in self.units.values)

    def value(self) -> float | None:
        """The metric, None where nothing was measured."""
        return self.statistic(self.units.values) if self.units.values else None


@dataclass(frozen=True, slots=True)
class Measured:
    """A value with its one-sided 95 % bounds. se: standard error. margin: by how much the truth must clear the
    threshold for the gate to pass in four of five runs, where that is known exactly."""

    value: float
    low: float
    high: float
    method: str
    se: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a gate on one card or score.

    low, high: one-sided 95 % bounds of `value`, which for a relative gate is the difference to the baseline.
    mde: how far beyond the threshold the truth must lie for this gate to pass in four of five such runs; None where it
    never would. reason: why this outcome, for people. n: independent units, of the kind `unit`.
    calibration: what is known of the judge where the gate is on a judged behaviour. own, base: what a difference is of.
    """

    outcome: Outcome
    value: float | None
    low: float | None
    high: float | None
    method: str
    worst_case: Outcome | None
    best_case: Outcome | None
    mde: float | None = None
    reason: str = ""
    n: int = 0
    unit: ClusterUnit = "scenario"
    calibration: Standing | None = None
    own: float | None = None
    base: float | None = None


def decide(gate: Gate, sample: Sample, policy: Policy, draws: Draws, baseline: Sample | None = None) -> Decision:
    """Decide a gate on a sample; a relative gate on its difference to the baseline's, unit by unit.

    draws: bootstrap index lists for a number of units. Raises ValueError for a relative gate without a baseline.
    """
    if gate.relative != (baseline is not None):
        raise ValueError("a baseline is for relative gates, and they need one")
    found = measure(sample, None, draws, baseline)
    if found is None:
        return nothing_measured(sample.units.unit)
    measured, n = found
    cases: dict[End, Measured | None] = {"low": measured, "high": measured}
    if sample.missing or (baseline is not None and baseline.missing):
        for end in cases:
            case = measure(sample, end, draws, baseline)
            cases[end] = case[0] if case else None
    worst, best = (cases["low"], cases["high"]) if gate.op == ">=" else (cases["high"], cases["low"])
    decision = conclude(gate, measured, worst, best, policy)
    exact = sample.binary and baseline is None
    return replace(
        decision,
        n=n,
        unit=sample.units.unit,
        mde=_rate_mde(gate, n) if exact and policy == "bound" else decision.mde,
        own=sample.value() if baseline else None,
        base=baseline.value() if baseline else None,
    )


def nothing_measured(unit: ClusterUnit) -> Decision:
    """The decision where there is no measurement at all."""
    return Decision("incomplete", None, None, None, "", None, None, reason="nothing was measured", unit=unit)


def measure(
    sample: Sample, end: End | None, draws: Draws, baseline: Sample | None = None
) -> tuple[Measured, int] | None:
    """A sample's metric, or its difference to the baseline's, with bounds and the number of units; None for no units.

    end: where everything missing is put, None to leave it out; a baseline's goes to the other end.
    """
    units = _units(sample, end)
    if units is None:
        return None
    if baseline is None:
        return _measure_one(sample, units, draws) if units.values else None
    others = _units(baseline, None if end is None else "high" if end == "low" else "low")
    if others is None:
        return None
    pairs, _, _ = pair(units, others)
    return _measure_pairs(sample, pairs, draws) if pairs.values else None


def _units(sample: Sample, end: End | None) -> Clusters[Any] | None:
    if end is None or not sample.missing:
        return sample.units
    return sample.fill(end) if sample.fill else None


def _measure_one(sample: Sample, units: Clusters[Any], draws: Draws) -> tuple[Measured, int]:
    value = sample.statistic(units.values)
    if sample.scale is None:
        interval = bca(units, sample.statistic, draws(len(units)), TWO_SIDED)
        se = (interval.high - interval.low) / (2 * Z_ONE_SIDED)
    else:
        interval = bounded_mean(units, sample.scale, TWO_SIDED)
        se = standard_error(units) or 0.0
    return Measured(value, interval.low, interval.high, interval.method, se), len(units)


def _measure_pairs(sample: Sample, pairs: Clusters[tuple[Any, Any]], draws: Draws) -> tuple[Measured, int]:
    if sample.scale is None:

        def difference(units: Sequence[tuple[Any, Any]]) -> float:
            return sample.statistic([a for a, _ in units]) - sample.statistic([b for _, b in units])

        interval = bca(pairs, difference, draws(len(pairs)), TWO_SIDED)
        se = (interval.high - interval.low) / (2 * Z_ONE_SIDED)
        return Measured(difference(pairs.values), interval.low, interval.high, f"paired {interval.method}", se), len(
            pairs
        )
    differences = pairs.map(lambda both: both[0] - both[1])
    value = fsum(differences.values) / len(differences)
    width = sample.scale[1] - sample.scale[0]
    interval = bounded_mean(differences, (-width, width), TWO_SIDED)
    se = standard_error(differences) or 0.0
    return Measured(value, interval.low, interval.high, f"paired {interval.method}", se), len(pairs)


def conclude(gate: Gate, measured: Measured, worst: Measured | None, best: Measured | None, policy: Policy) -> Decision:
    """The decision on measured values: as they are, and with everything missing at its worst and best.

    worst, best: None where that case cannot be made up; the gate then is inconclusive.
    """
    worst_case, best_case = (None if case is None else compare(gate, case, policy) for case in (worst, best))
    outcome: Outcome = "inconclusive"
    if worst_case == "pass":
        outcome = "pass"
    elif best_case == "fail":
        outcome = "fail"
    mde = None
    if policy == "bound" and measured.se is not None:
        reach = measured.value - measured.low if gate.op == ">=" else measured.high - measured.value
        mde = reach + _POWER * measured.se
    reason = _reason(gate, measured, outcome, worst_case, best_case, policy)
    return Decision(
        outcome, measured.value, measured.low, measured.high, measured.method, worst_case, best_case, mde, reason
    )


def compare(gate: Gate, measured: Measured, policy: Policy) -> Outcome:
    """Outcome of a gate on a value with its one-sided 95 % bounds."""
    low, high = (measured.value, measured.value) if policy == "point" else (measured.low, measured.high)
    if gate.op == ">=":
        return "pass" if low >= gate.threshold else "fail" if high < gate.threshold else "inconclusive"
    return "pass" if high <= gate.threshold else "fail" if low > gate.threshold else "inconclusive"


def _reason(
    gate: Gate, measured: Measured, outcome: Outcome, worst: Outcome | None, best: Outcome | None, policy: Policy
) -> str:
    what = "the difference to the baseline" if gate.relative else "the value"
    threshold = f"{gate.threshold:g}"
    if outcome == "inconclusive" and (worst, best) != ("inconclusive", "inconclusive"):
        if worst is None:
            return "something is missing, and its worst case cannot be told"
        return f"what is missing could decide it: worst case {worst}, best case {best}"
    if policy == "point":
        return f"{what} {measured.value:.3f} against {threshold}, decided on the point estimate"
    lower, upper = f"the lower bound {measured.low:.3f}", f"the upper bound {measured.high:.3f}"
    if outcome == "inconclusive":
        return f"{threshold} lies between the bounds {measured.low:.3f} and {measured.high:.3f} of {what}"
    bound, word = (lower, "at least") if (gate.op == ">=") == (outcome == "pass") else (upper, "at most")
    if outcome == "fail":
        word = "below" if gate.op == ">=" else "above"
        bound = f"even {upper if gate.op == '>=' else lower}"
    return f"{bound} of {what} is {word} {threshold}"


def _rate_mde(gate: Gate, n: int) -> float | None:
    """Exact for rates: distance of the least true rate that passes in four of five runs."""
    floor = gate.threshold if gate.op == ">=" else 1 - gate.threshold
    rate = least_passing_rate(n, floor)
    return None if rate is None else rate - floor


def limited(decision: Decision, beyond: bool) -> Decision:
    """Beyond the limit of what may be missing only a failure still stands."""
    if not beyond or decision.outcome == "fail":
        return decision
    return replace(decision, outcome="incomplete", reason="more is missing than the limit allows")


def with_calibration(decision: Decision, behaviour: str, calibration: Calibration | None) -> Decision:
    """A gate on a judged behaviour: labelled by what is known of the judge, inconclusive where it is below the bar."""
    found, why = standing(calibration, behaviour)
    if found != "below_bar" or decision.outcome == "incomplete":
        return replace(decision, calibration=found)
    return replace(decision, calibration=found, outcome="inconclusive", reason=f"the judge is below the bar: {why}")
