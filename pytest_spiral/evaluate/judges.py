"""What a report says about the judges of a score: their health, their agreement, what calibration allows. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_spiral.spiral.aggregate import point_score
from pytest_spiral.spiral.agreement import Firmness, agreement, firmness, only, without
from pytest_spiral.spiral.calibration import Estimate, standing
from pytest_spiral.spiral.judge_health import judge_health, overlaps
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.suspicion import suspicions
from pytest_spiral.stats import Interval

if TYPE_CHECKING:
    from pytest_spiral.spiral.calibration_run import CalibrationRun

__all__ = ["JudgeCalibration", "calibration_lines", "calibration_table", "judges_json"]


@dataclass(frozen=True)
class JudgeCalibration:
    """The calibration of a run's judges. drift: against the last one, None where there is none."""

    run: CalibrationRun
    drift: Mapping[str, Any] | None


def judges_json(
    conversations: Sequence[Conversation],
    judges: Sequence[str],
    actors: Sequence[tuple[str, str]],
    protocol: Protocol,
    seed: int,
    calibration: JudgeCalibration | None,
) -> dict[str, Any]:
    """The score's `judges` object. actors: role and model of everybody at the table, to tell families.

    `health.faults` stop publication, `health.no_verdict` the verdict as well.
    """
    healths = {judge: judge_health(judge, conversations, protocol) for judge in judges}
    suspected = [sum(bool(suspicions(reply)) for reply in talk.replies) for talk in conversations]
    faults = [fault for judge, health in healths.items() for fault in health.faults(judge)]
    if any(suspected):
        faults.append(f"J05 {sum(suspected)} replies look as if they spoke to the judge or the seeker; read them")
    below = list(calibration.run.below) if calibration else []
    if below:
        faults.append(f"J06 on labelled turns the judges fall short about {', '.join(below)}")
    if calibration and calibration.drift and calibration.drift["drifted"]:
        faults.append(f"J07 the judges have drifted on {', '.join(calibration.drift['drifted'])}")
    return {
        "agreement": _agreement(conversations, judges, protocol, seed),
        "per_judge": {
            judge: {
                **asdict(health),
                **_scores(conversations, judge, judges, protocol),
                "retest": {
                    how: _firmness(firmness(conversations, judge, how, protocol.behaviours, f"{seed}-retest"))
                    for how in ("again", "reordered")
                },
            }
            for judge, health in healths.items()
        },
        "health": {
            "faults": faults,
            "no_verdict": [reason for judge, health in healths.items() for reason in health.void(judge)],
            "warnings": overlaps(actors),
            "suspected": {"turns": sum(suspected), "conversations": sum(map(bool, suspected))},
        },
        "calibration": _calibration(conversations, calibration) if calibration else None,
    }


def _scores(
    conversations: Sequence[Conversation], judge: str, judges: Sequence[str], protocol: Protocol
) -> dict[str, float | None]:
    """The composite by this judge alone and by the others; None for a single judge."""
    if len(judges) < 2:
        return {"score_alone": None, "score_without": None}
    return {
        "score_alone": point_score(only(conversations, judge), protocol),
        "score_without": point_score(without(conversations, judge), protocol),
    }


def _agreement(
    conversations: Sequence[Conversation], judges: Sequence[str], protocol: Protocol, seed: int
) -> dict[str, Any] | None:
    if len(judges) < 2:
        return None
    found = agreement(conversations, judges, protocol.behaviours, f"{seed}-agreement")
    return {behaviour: asdict(result) for behaviour, result in found.items()}


def _firmness(found: Firmness | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def _calibration(conversations: Sequence[Conversation], calibration: JudgeCalibration) -> dict[str, Any]:
    from pytest_spiral.spiral.calibration_run import corrected

    run = calibration.run
    behaviours = {}
    for name, found in run.record.behaviours.items():
        verdict, reason = standing(run.record, name)
        strength = run.strength[name]
        behaviours[name] = {
            **asdict(found),
            "strength": None if strength is None else asdict(strength),
            "standing": verdict,
            "reason": reason,
            "raters_agreement": None if (found_by := run.agreement[name]) is None else asdict(found_by),
            "turn_rate": corrected(conversations, run.record, name),
        }
    return {
        "labels": run.record.labels,
        "turns": run.turns,
        "unread": run.unread,
        "raters": dict(run.raters),
        "disagreements": len(run.disagreements),
        "kinds": {kind: {"turns": n, "false_alarms": alarms} for kind, (n, alarms) in run.kinds.items()},
        "behaviours": behaviours,
        "drift": None if calibration.drift is None else dict(calibration.drift),
    }


def calibration_lines(run: CalibrationRun, drift: Mapping[str, Any] | None) -> list[str]:
    """A calibration for the terminal."""
    lines = [
        f"judges {', '.join(run.record.judges)} on {run.turns} labelled turns ({run.record.labels})",
        f"labelled by: {', '.join(f'{name} ({kind})' for name, kind in run.raters.items())}",
    ]
    if run.unread:
        lines.append(f"{run.unread} turns without a readable judgement, counted as wrong")
    lines += ["", f"{'behaviour':<34}{'there':>6}{'  sensitivity':<22}{'  specificity':<22}{'  kappa':<22}  may decide"]
    lines += calibration_table(run)
    alarms = ", ".join(f"{kind} {n} of {of}" for kind, (of, n) in run.kinds.items())
    lines += ["", f"turns with something seen that is not there: {alarms}"] if alarms else []
    lines += _rater_lines(run)
    if drift is None:
        lines.append("drift: no earlier calibration of these judges on these labels")
    elif not drift["comparable"]:
        lines.append("drift: the last calibration had other labels or another rubric")
    else:
        named = ", ".join(drift["drifted"]) or "none beyond the interval"
        lines.append(f"drift: {drift['changed']:.1%} of the labels changed since the last calibration; {named}")
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
            f"their consensus is what the author meant ({author}) on {run.turns - len(odd)} of {run.turns} turns"
        )
    return lines


def _shown(estimate: Estimate | None) -> str:
    return "-" if estimate is None else _ranged(estimate.value, estimate)


def _ranged(value: float | None, interval: Estimate | Interval | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} " + ("[?]" if interval is None else f"[{interval.low:.2f}, {interval.high:.2f}]")
