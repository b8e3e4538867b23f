"""A calibration of judges for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_spiral.report.lines import between
from pytest_spiral.report.model import Drift
from pytest_spiral.report.model.judges import Estimate
from pytest_spiral.spiral.calibration import standing
from pytest_spiral.spiral.calibration_result import CalibrationResult
from pytest_spiral.stats import Interval

__all__ = ["calibration_lines"]


def calibration_lines(run: CalibrationResult, drift: Drift | None) -> Iterator[str]:
    """Sensitivity, specificity and kappa by behaviour, the labels behind them, and the drift since the last time."""
    yield f"judges {', '.join(run.record.judges)} on {run.turns} labelled turns ({run.record.labels})"
    yield f"labelled by: {', '.join(f'{name} ({kind})' for name, kind in run.raters.items())}"
    if run.unread:
        yield f"{run.unread} turns without a readable judgement, counted as wrong"
    yield ""
    yield f"{'behaviour':<34}{'n':>6}{'  sensitivity':<22}{'  specificity':<22}{'  kappa':<22}  standing"
    for name, row in run.record.behaviours.items():
        estimates = (row.sensitivity, row.specificity, row.kappa)
        cells = ("-" if e is None else _ranged(e.value, e) for e in estimates)
        verdict = standing(run.record, name)[0].replace("_", " ")
        yield f"{name:<34}{row.positives:>6}" + "".join(f"  {cell:<20}" for cell in cells) + f"  {verdict}"
    if run.kinds:
        yield ""
        alarms = ", ".join(f"{kind} {count.false_alarms} of {count.turns}" for kind, count in run.kinds.items())
        yield f"turns with a finding that the labels do not have: {alarms}"
    yield from _rater_lines(run)
    yield _drift(drift)
    yield "publication: blocked" if run.below else "publication: not blocked by calibration"


def _drift(drift: Drift | None) -> str:
    if drift is None:
        return "drift: no earlier calibration of these judges on these labels"
    if not drift.comparable:
        return "drift: the last calibration used other labels or another rubric"
    behaviours = ", ".join(drift.drifted) or "no behaviour beyond its interval"
    return f"drift: {drift.changed or 0:.1%} of the labels changed since the last calibration; {behaviours}"


def _rater_lines(run: CalibrationResult) -> Iterator[str]:
    """Agreement of the raters among themselves, and with the author."""
    if len(run.raters) < 2:
        return
    yield ""
    yield f"the raters differ on {len(run.disagreements)} turns; --json lists them"
    yield f"{'agreement of the raters (alpha)':<34}    presence              strength"
    for name, row in run.agreement.items():
        if row is not None:
            presence = _ranged(row.presence, row.presence_interval)
            yield f"{name:<34}    {presence:<20}  {_ranged(row.strength, row.strength_interval)}"
    for author, by_name in run.author.items():
        differing = {turn for m in by_name.values() for turn in (*m.consensus_only, *m.author_only, *m.other_strength)}
        same = run.turns - len(differing)
        yield f"the raters' consensus matches the author's intention ({author}) on {same} of {run.turns} turns"


def _ranged(value: float | None, interval: Estimate | Interval | None) -> str:
    low, high = (interval.low, interval.high) if interval else (None, None)
    return "-" if value is None else between(value, low, high)
