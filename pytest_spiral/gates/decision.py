"""What a gate may conclude: pass, fail or inconclusive, never more than the data support. Pure.

One-sided 95 % bounds decide. Missing measurements count once as worst and once as best: a gate passes only if the worst
case passes and fails only if the best case fails.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_spiral.gates.estimate import Draws, End, Measured, Sample, measure, measure_difference
from pytest_spiral.gates.grammar import Gate
from pytest_spiral.gates.records import Decision, DecisionCode, DecisionReason, JudgeStanding, Outcome, Policy
from pytest_spiral.stats import ClusterUnit, least_passing_rate

__all__ = ["conclude", "decide", "limit_missing", "nothing_measured", "outcome_of", "with_standing"]

# Standard errors beyond a bound at which it is met in four of five runs: the 80 % point of the normal.
_POWER = 0.8416


def decide(gate: Gate, sample: Sample, policy: Policy, draws: Draws, baseline: Sample | None = None) -> Decision:
    """Decide a gate on a metric, or a relative gate on its paired difference to a baseline.

    Raises:
        ValueError: For a relative gate without a baseline, or the other way round.
    """
    if gate.relative != (baseline is not None):
        raise ValueError("a relative gate needs a baseline, and no other gate takes one")

    def estimate(end: End | None) -> Measured | None:
        return measure(sample, end, draws) if baseline is None else measure_difference(sample, baseline, end, draws)

    measured = estimate(None)
    if measured is None:
        return nothing_measured(sample.units.unit)
    complete = not sample.missing and (baseline is None or not baseline.missing)
    low, high = (measured if complete else estimate(end) for end in ("low", "high"))
    worst, best = (low, high) if gate.at_least else (high, low)
    decision = replace(conclude(gate, measured, worst, best, policy), unit=sample.units.unit)
    if sample.binary and baseline is None and policy == "bound":
        # Exact for rates: distance from the threshold to the least true rate that passes in four of five runs.
        floor = gate.threshold if gate.at_least else 1 - gate.threshold
        rate = least_passing_rate(measured.n, floor)
        decision = replace(decision, mde=None if rate is None else rate - floor)
    return decision


def nothing_measured(unit: ClusterUnit) -> Decision:
    """The decision without any measurement."""
    return Decision("incomplete", DecisionReason(DecisionCode.NOTHING_MEASURED, "nothing was measured"), unit=unit)


def conclude(gate: Gate, measured: Measured, worst: Measured | None, best: Measured | None, policy: Policy) -> Decision:
    """The decision on an estimate from what was measured.

    worst, best: the same with everything missing at its worst and best; None where that is undefined.
    """
    worst_case, best_case = (None if case is None else outcome_of(gate, case, policy) for case in (worst, best))
    outcome: Outcome = "inconclusive"
    if worst_case == "pass":
        outcome = "pass"
    elif best_case == "fail":
        outcome = "fail"
    mde = None
    if policy == "bound" and measured.se is not None:
        reach = measured.value - measured.low if gate.at_least else measured.high - measured.value
        mde = reach + _POWER * measured.se
    return Decision(
        outcome=outcome,
        reason=_reason(gate, measured, (outcome, worst_case, best_case), policy),
        value=measured.value,
        low=measured.low,
        high=measured.high,
        method=measured.method,
        worst_case=worst_case,
        best_case=best_case,
        mde=mde,
        n=measured.n,
        candidate=measured.candidate,
        baseline=measured.baseline,
    )


def outcome_of(gate: Gate, measured: Measured, policy: Policy) -> Outcome:
    """Outcome of a gate on an estimate with its one-sided 95 % bounds."""
    low, high = (measured.value, measured.value) if policy == "point" else (measured.low, measured.high)
    if gate.at_least:
        return "pass" if low >= gate.threshold else "fail" if high < gate.threshold else "inconclusive"
    return "pass" if high <= gate.threshold else "fail" if low > gate.threshold else "inconclusive"


def _reason(
    gate: Gate, measured: Measured, outcomes: tuple[Outcome, Outcome | None, Outcome | None], policy: Policy
) -> DecisionReason:
    outcome, worst, best = outcomes
    what = "the difference to the baseline" if gate.relative else "the value"
    threshold = f"{gate.threshold:g}"
    if outcome == "inconclusive" and worst is None:
        text = "measurements are missing, and the worst case of this metric is not defined"
        return DecisionReason(DecisionCode.WORST_CASE_UNKNOWN, text)
    if outcome == "inconclusive" and (worst, best) != ("inconclusive", "inconclusive"):
        text = f"missing measurements could decide it: worst case {worst}, best case {best}"
        return DecisionReason(DecisionCode.MISSING_DECIDES, text)
    if policy == "point":
        text = f"{what} {measured.value:.3f} against {threshold}, decided on the point estimate"
        return DecisionReason(DecisionCode.POINT_ESTIMATE, text)
    if outcome == "inconclusive":
        text = f"{threshold} lies between the bounds {measured.low:.3f} and {measured.high:.3f} of {what}"
        return DecisionReason(DecisionCode.THRESHOLD_BETWEEN, text)
    bounds = f"the lower bound {measured.low:.3f}", f"the upper bound {measured.high:.3f}"
    unfavourable, favourable = bounds if gate.at_least else bounds[::-1]
    if outcome == "pass":
        text = f"{unfavourable} of {what} is {'at least' if gate.at_least else 'at most'} {threshold}"
        return DecisionReason(DecisionCode.BOUND_MET, text)
    text = f"even {favourable} of {what} is {'below' if gate.at_least else 'above'} {threshold}"
    return DecisionReason(DecisionCode.BOUND_MISSED, text)


def limit_missing(decision: Decision, beyond: bool) -> Decision:
    """Where more is missing than the limit allows, only a failure stands."""
    if not beyond or decision.outcome == "fail":
        return decision
    reason = DecisionReason(DecisionCode.TOO_MUCH_MISSING, "more is missing than the limit allows")
    return replace(decision, outcome="incomplete", reason=reason)


def with_standing(decision: Decision, judge: JudgeStanding) -> Decision:
    """A decision on a judged behaviour: labelled with the judge's standing, inconclusive where it is below the bar."""
    decision = replace(decision, judge=judge.standing)
    if judge.standing != "below_bar" or decision.outcome == "incomplete":
        return decision
    reason = DecisionReason(DecisionCode.JUDGE_BELOW_BAR, f"the judge is below the bar: {judge.detail}")
    return replace(decision, outcome="inconclusive", reason=reason)
