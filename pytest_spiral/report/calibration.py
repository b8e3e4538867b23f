"""A calibration of judges for the terminal."""

from __future__ import annotations

from pytest_spiral.report.model import Drift
from pytest_spiral.report.model.judges import Estimate
from pytest_spiral.spiral.calibration import standing
from pytest_spiral.spiral.calibration_run import CalibrationRun
from pytest_spiral.stats import Interval

__all__ = ["calibration_lines", "calibration_table"]


def calibration_lines(run: CalibrationRun, drift: Drift | None) -> list[str]:
    """A calibration for the terminal."""
    lines = [
        f"judges {', '.join(run.record.judges)} on {run.turns} labelled turns ({run.record.labels})",
        f"labelled by: {', '.join(f'{name} ({kind})' for name, kind in run.raters.items())}",
    ]
    if run.unread:
        lines.append(f"{run.unread} turns without a readable judgement, counted as wrong")
    lines += ["", f"{'behaviour':<34}{'n':>6}{'  sensitivity':<22}{'  specificity':<22}{'  kappa':<22}  may decide"]
    lines += calibration_table(run)
    alarms = ", ".join(f"{kind} {count.false_alarms} of {count.turns}" for kind, count in run.kinds.items())
    lines += ["", f"turns with a finding that the labels do not have: {alarms}"] if alarms else []
    lines += _rater_lines(run)
    if drift is None:
        lines.append("drift: no earlier calibration of these judges on these labels")
    elif not drift.comparable:
        lines.append("drift: the last calibration had other labels or another rubric")
    else:
        named = ", ".join(drift.drifted) or "none beyond the interval"
        lines.append(f"drift: {drift.changed or 0:.1%} of the labels changed since the last calibration; {named}")
    lines.append("publication: blocked" if run.below else "publication: not blocked by calibration")
    return lines


def calibration_table(run: CalibrationRun) -> list[str]:
    """One line per behaviour."""
    return [
        f"{name:<34}{found.positives:>6}  {_shown(found.sensitivity):<20}  {_shown(found.specificity):<20}"
        f"  {_shown(found.kappa):<20}  {standing(run.record, name)[0].replace('_', ' ')}"
        for name, found in run.record.behaviours.items()
    ]


def _rater_lines(run: CalibrationRun) -> list[str]:
    """What stands behind the labels: the raters' agreement, and theirs with the author."""
    if len(run.raters) < 2:
        return []
    lines = [
        "",
        f"the raters differ on {len(run.disagreements)} turns; all labels are kept (--json)",
        f"{'alpha of the raters (Krippendorff)':<34}    presence              strength",
    ]
    for name, found in run.agreement.items():
        if found is not None:
            presence = _ranged(found.presence, found.presence_interval)
            strength = _ranged(found.strength, found.strength_interval)
            lines.append(f"{name:<34}    {presence:<20}  {strength}")
    for author, by_name in run.author.items():
        odd = {turn for m in by_name.values() for turn in (*m.consensus_only, *m.author_only, *m.other_strength)}
        lines.append(
            f"the raters' consensus is the author's intention ({author}) on {run.turns - len(odd)} of {run.turns} turns"
        )
    return lines


def _shown(estimate: Estimate | None) -> str:
    return "-" if estimate is None else _ranged(estimate.value, estimate)


def _ranged(value: float | None, interval: Estimate | Interval | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} " + ("[?]" if interval is None else f"[{interval.low:.2f}, {interval.high:.2f}]")
