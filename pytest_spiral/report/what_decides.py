"""What would decide a gate that is inconclusive: more prompts, more answers to each, or nothing in reach."""

from __future__ import annotations

from math import ceil, floor, inf

from pytest_spiral.report.model import GateRow, Report
from pytest_spiral.report.model.gate import DecisionCode
from pytest_spiral.report.next_step import is_resumable
from pytest_spiral.stats import VarianceSummary

# More than so many times the prompts of this run is not in reach of anybody who has to decide a release.
_MOST_TIMES = 10.0
_REPEATS = {"scenario": "--epochs", "prompt": "--convos-per-prompt"}


def what_decides(report: Report, row: GateRow) -> str:
    """For an inconclusive gate, what would decide it, at what cost, and what the present data decide; else nothing.

    A gate asks whether it would hold on other prompts like these. The width of its bounds falls with the square root of
    their number; repeating the same ones takes away no more than the noise of a rerun.
    """
    if row.outcome != "inconclusive" or row.value is None or row.ci_low is None or row.ci_high is None:
        return ""
    if row.reason.code is DecisionCode.MISSING_DECIDES and ".corrected." in row.metric:
        return "what raters left open decides it, or missing measurements: settle that, and merge the labels again"
    if row.reason.code in _MISSING and not is_resumable(report):
        return "what is missing decides it, and resuming the run gets none of it"
    if row.reason.code is not DecisionCode.THRESHOLD_BETWEEN:
        return _other_ways.get(row.reason.code, "")
    if ".corrected." in row.metric:
        return f"more labelled replies narrow its bounds, down to those of the measured number; {_decidable(row)}"
    gap = abs(row.value - row.threshold)
    passing = (row.value >= row.threshold) == row.at_least
    reach = row.value - row.ci_low if (row.value > row.threshold) else row.ci_high - row.value
    # As for the true value from which a gate passes in four of five runs; 1.6449 standard errors are one bound.
    needed = reach * (1 + 0.8416 / 1.6449)
    times = (needed / gap) ** 2 if gap else inf
    if times > _MOST_TIMES:
        many = f"it takes more than {_MOST_TIMES:g} times the {row.unit}s" if gap else "the value is the threshold"
        advice = f"nothing in reach would decide it: {many}"
    else:
        end = "pass" if passing else "fail"
        cost = report.usage.cost_usd
        price = f" (about {cost * times:.2g} USD instead of {cost:.2g})" if cost else ""
        advice = (
            f"if {row.value:.3g} is the true value, {ceil(row.n * times)} {row.unit}s instead of {row.n} let it {end} "
            f"in 4 of 5 runs{price}; the bundled suite has no more, so the others are yours to write"
            f"{_repeats(report, row, times)}"
        )
    return f"{advice}; {_decidable(row)}"


_MISSING = (DecisionCode.MISSING_DECIDES, DecisionCode.WORST_CASE_UNKNOWN)
_other_ways = {
    **dict.fromkeys(_MISSING, "what is missing decides it: get it by the command below"),
    DecisionCode.JUDGE_BELOW_BAR: "no number of prompts decides it: name a judge that is above the bar",
    DecisionCode.JUDGE_MOVED: "no number of prompts decides it: both runs need the same judge",
}


def _repeats(report: Report, row: GateRow, times: float) -> str:
    """Whether repeating the same prompts would do, as far as the noise of a rerun is known."""
    option = _REPEATS.get(row.unit)
    variance = _variance(report, row)
    if option is None or row.baseline is not None or variance is None or variance.rerun is None:
        return f"; whether more {option} would do is not known without repetitions" if option else ""
    total = variance.between + variance.rerun / variance.repetitions
    # Of the variance, what must remain for the bounds to be narrow enough, and what no repetition takes away.
    wanted = total / times
    if wanted <= variance.between:
        return f"; no {option} would do, for the {row.unit}s differ too much"
    repeats = ceil(variance.rerun / (wanted - variance.between))
    return f", or {option}={repeats}" if repeats <= _MOST_TIMES * variance.repetitions else ""


def _variance(report: Report, row: GateRow) -> VarianceSummary | None:
    """Where the noise of the gate's metric comes from; it is computed for scores only."""
    suite, _, metric = row.metric.partition(".")
    if suite == "tempaffect":
        cards = (c for c in report.tempaffect.cards if (c.model, c.prompting_mode) == (row.model, row.prompting_mode))
        return next((card.variance.get(metric) for card in cards), None)
    scores = (score.variance for score in report.spiral.scores if score.model == row.model)
    return next(scores, None) if metric == "score" else None


def _decidable(row: GateRow) -> str:
    """The thresholds nearest to this one that the data decide, rounded away from it."""
    assert row.ci_low is not None
    assert row.ci_high is not None
    digits = 3 if max(abs(row.ci_low), abs(row.ci_high)) <= 1 else 1
    unit = 10**digits
    low, high = floor(row.ci_low * unit) / unit, ceil(row.ci_high * unit) / unit
    passes, fails = (f">= {low:g}", f">= {high:g}") if row.at_least else (f"<= {high:g}", f"<= {low:g}")
    return f"these data would pass a threshold {passes} and fail one beyond {fails}"
