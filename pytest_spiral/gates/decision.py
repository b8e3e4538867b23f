"""What a gate may conclude: pass, fail or inconclusive, never more than the data support. Pure.

One-sided 95 % bounds decide. Missing measurements count once as worst and once as best: a gate passes only if the worst
case passes and fails only if the best case fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_spiral.gates.estimate import Draws, End, Measured, Sample, measure, measure_difference
from pytest_spiral.gates.grammar import Gate
from pytest_spiral.report.model.gate import DecisionCode, DecisionReason, Outcome, Policy, Standing
from pytest_spiral.stats import least_passing_rate

__all__ = [
    "NOTHING_MEASURED",
    "PART_FAILED",
    "DecisionCode",
    "GateDecision",
    "Outcome",
    "Policy",
    "Standing",
    "conclude",
    "decide",
    "limit_missing",
    "outcome_of",
    "rate_mde",
    "with_moved_judges",
    "with_standing",
]

# Standard errors beyond a bound at which it is met in four of five runs: the 80 % point of the normal.
_POWER = 0.8416


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The outcome of a gate on one card or score.

    Attributes:
        measured: The metric, for a relative gate its difference to the baseline; None where nothing was measured.
        worst_case: Outcome with everything missing at its worst; None where that is unknown.
        best_case: Outcome with everything missing at its best.
        mde: How far beyond the threshold the true value must lie for the gate to pass in four of five such runs; None
            where it never would.
        judge: For a gate on a judged behaviour what is known about the judge.
    """

    outcome: Outcome
    reason: DecisionReason
    measured: Measured | None = None
    worst_case: Outcome | None = None
    best_case: Outcome | None = None
    mde: float | None = None
    judge: Standing | None = None


NOTHING_MEASURED = GateDecision("incomplete", DecisionReason(DecisionCode.NOTHING_MEASURED, "nothing was measured"))
PART_FAILED = GateDecision(
    "incomplete", DecisionReason(DecisionCode.PART_FAILED, "a part of the report that it needs could not be made")
)


def decide(gate: Gate, sample: Sample, policy: Policy, draws: Draws, baseline: Sample | None = None) -> GateDecision:
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
        return NOTHING_MEASURED
    complete = not sample.missing and (baseline is None or not baseline.missing)
    ends = (measured, measured) if complete else (estimate("low"), estimate("high"))
    decision = conclude(gate, measured, ends, policy)
    if sample.scale and {*sample.units.values} <= {*sample.scale} and baseline is None and policy == "bound":
        decision = replace(decision, mde=rate_mde(gate, measured.n, sample.scale))
    return decision


def rate_mde(gate: Gate, n: int, scale: tuple[float, float] = (0.0, 1.0)) -> float | None:
    """Of a gate on a mean of n units at the ends of a scale, exactly: the distance from its threshold to the least true
    value that passes in four of five runs; None where none does."""
    width = scale[1] - scale[0]
    threshold = (gate.threshold - scale[0] if gate.at_least else scale[1] - gate.threshold) / width
    rate = least_passing_rate(n, threshold)
    return None if rate is None else (rate - threshold) * width


def conclude(
    gate: Gate, measured: Measured, ends: tuple[Measured | None, Measured | None], policy: Policy
) -> GateDecision:
    """The decision on an estimate from what was measured.

    ends: the same with everything missing at either end, in any order; None where that is undefined.
    """
    worst_case = best_case = None
    if ends[0] is not None and ends[1] is not None:
        # What nobody measured makes no bound tighter. The worst case is the end that the metric must stay away from.
        below, above = sorted((ends[0], ends[1]), key=lambda case: case.value)
        cases = replace(below, low=min(below.low, measured.low)), replace(above, high=max(above.high, measured.high))
        worst_case, best_case = (outcome_of(gate, one, policy) for one in (cases if gate.at_least else cases[::-1]))
    outcome: Outcome = "pass" if worst_case == "pass" else "fail" if best_case == "fail" else "inconclusive"
    mde = None
    if policy == "bound" and measured.se is not None:
        reach = measured.value - measured.low if gate.at_least else measured.high - measured.value
        mde = reach + _POWER * measured.se
    code, detail = _reason(gate, measured, (outcome, worst_case, best_case), policy)
    return GateDecision(outcome, DecisionReason(code, detail), measured, worst_case, best_case, mde)


def outcome_of(gate: Gate, measured: Measured, policy: Policy) -> Outcome:
    """Outcome of a gate on an estimate with its one-sided 95 % bounds."""
    low, high = (measured.value, measured.value) if policy == "point" else (measured.low, measured.high)
    if gate.at_least:
        return "pass" if low >= gate.threshold else "fail" if high < gate.threshold else "inconclusive"
    return "pass" if high <= gate.threshold else "fail" if low > gate.threshold else "inconclusive"


def _reason(
    gate: Gate, measured: Measured, outcomes: tuple[Outcome, Outcome | None, Outcome | None], policy: Policy
) -> tuple[DecisionCode, str]:
    outcome, worst, best = outcomes
    what = "the difference to the baseline" if gate.relative else "the value"
    threshold = f"{gate.threshold:g}"
    value, low, high = (_apart(number, gate.threshold) for number in (measured.value, measured.low, measured.high))
    undecided = outcome == "inconclusive"
    if undecided and worst is None:
        return DecisionCode.WORST_CASE_UNKNOWN, "measurements are missing, and the metric has no defined worst case"
    if undecided and (worst, best) != ("inconclusive", "inconclusive"):
        text = f"missing measurements could decide it: worst case {worst}, best case {best}"
        return DecisionCode.MISSING_DECIDES, text
    if policy == "point":
        text = f"{what} {value} against {threshold}, decided on the point estimate"
        return DecisionCode.POINT_ESTIMATE, text
    if undecided:
        text = f"{threshold} lies between the one-sided 95 % bounds {low} and {high} of {what}"
        return DecisionCode.THRESHOLD_BETWEEN, text
    if outcome == "pass":
        bound, relation = (f"lower bound {low}", "at least") if gate.at_least else (f"upper bound {high}", "at most")
        return DecisionCode.BOUND_MET, f"the {bound} of {what} is {relation} {threshold}"
    bound, relation = (f"upper bound {high}", "below") if gate.at_least else (f"lower bound {low}", "above")
    return DecisionCode.BOUND_MISSED, f"even the {bound} of {what} is {relation} {threshold}"


def _apart(number: float, threshold: float) -> str:
    """A number with three decimals, or as many more as it takes to stay on its side of the threshold.

    >>> _apart(0.69996, 0.7), _apart(0.7, 0.7), _apart(0.5, 0.7)
    ('0.69996', '0.700', '0.500')
    """
    text, digits = f"{number:.3f}", 3
    while (float(text) < threshold) != (number < threshold) or (float(text) > threshold) != (number > threshold):
        text, digits = f"{number:.{digits + 1}f}", digits + 1
    return text


def limit_missing(decision: GateDecision, beyond: bool) -> GateDecision:
    """Where more is missing than the limit allows, only a failure stands."""
    if not beyond or decision.outcome == "fail":
        return decision
    reason = DecisionReason(DecisionCode.TOO_MUCH_MISSING, "more is missing than the limit allows")
    return replace(decision, outcome="incomplete", reason=reason)


def with_standing(decision: GateDecision, standing: Standing, detail: str) -> GateDecision:
    """A decision on a judged behaviour: labelled with the judge's standing, inconclusive where it is below the bar.

    detail: what the judge lacks.
    """
    decision = replace(decision, judge=standing)
    if standing != "below_bar" or decision.outcome == "incomplete":
        return decision
    reason = DecisionReason(DecisionCode.JUDGE_BELOW_BAR, f"the judge is below the calibration bar: {detail}")
    return replace(decision, outcome="inconclusive", reason=reason)


def with_moved_judges(decision: GateDecision, detail: str) -> GateDecision:
    """A decision on a difference between judgements of judges who are not the same: none. detail: who, and how far."""
    if decision.outcome == "incomplete":
        return decision
    return replace(decision, outcome="inconclusive", reason=DecisionReason(DecisionCode.JUDGE_MOVED, detail))
