"""What a report says about the judges of a score: their agreement, their health, their calibration. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_spiral.evaluate.inputs import JudgeCalibration, SpiralContext
from pytest_spiral.report.model.judges import (
    BehaviourStanding,
    CalibrationReport,
    JudgeHealth,
    JudgeReport,
    JudgesHealth,
    JudgesReport,
    RetestResult,
    Retests,
    Suspected,
)
from pytest_spiral.spiral.aggregate import point_score
from pytest_spiral.spiral.agreement import agreement, firmness, only, without
from pytest_spiral.spiral.calibration import corrected_turn_rate, standing
from pytest_spiral.spiral.judge_health import faults, judge_health, leaves_no_verdict, overlaps
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.suspicion import suspicions


def judges_report(
    conversations: Sequence[Conversation], actors: Sequence[tuple[str, str]], context: SpiralContext
) -> JudgesReport:
    """The report on the judges of one model's conversations.

    Args:
        conversations: Of one model, twins included.
        actors: Role and name of every model that took part.
        context: Of the run.
    """
    judges = context.judges or sorted({j.judge for c in conversations for j in c.judgements})
    healths = {judge: judge_health(judge, conversations, context.protocol) for judge in judges}
    suspected = [sum(bool(suspicions(reply)) for reply in c.replies) for c in conversations]
    calibration = context.calibrated
    return JudgesReport(
        agreement=agreement(conversations, judges, context.protocol.behaviours, f"{context.seed}-agreement")
        if len(judges) > 1
        else None,
        per_judge={judge: _judge(judge, judges, health, conversations, context) for judge, health in healths.items()},
        health=JudgesHealth(
            faults=tuple(_faults(healths, sum(suspected), calibration)),
            no_verdict=tuple(
                f"judgements of {judge} mean nothing: see its faults"
                for judge, health in healths.items()
                if leaves_no_verdict(health)
            ),
            warnings=tuple(overlaps(actors)),
            suspected=Suspected(turns=sum(suspected), conversations=sum(map(bool, suspected))),
        ),
        calibration=None if calibration is None else _calibration(conversations, calibration),
    )


def _faults(healths: dict[str, JudgeHealth], suspected: int, calibration: JudgeCalibration | None) -> list[str]:
    lines = [fault for judge, health in healths.items() for fault in faults(judge, health)]
    if suspected:
        lines.append(f"J05 {suspected} replies may address the judge or the simulated user; read them")
    if calibration is not None and (below := list(calibration.run.below)):
        lines.append(f"J06 on labelled turns the judges are not reliable enough about {', '.join(below)}")
    if calibration is not None and calibration.drift is not None and calibration.drift.drifted:
        lines.append(f"J07 the judges have drifted on {', '.join(calibration.drift.drifted)}")
    return lines


def _judge(
    judge: str,
    judges: Sequence[str],
    health: JudgeHealth,
    conversations: Sequence[Conversation],
    context: SpiralContext,
) -> JudgeReport:
    def retest(how: str) -> RetestResult | None:
        return firmness(conversations, judge, how, context.protocol.behaviours, f"{context.seed}-retest")

    def score(part: Sequence[Conversation], protocol: Protocol) -> float | None:
        return point_score(part, protocol) if len(judges) > 1 else None

    return JudgeReport(
        **dict(health),
        score_alone=score(only(conversations, judge), context.protocol),
        score_without=score(without(conversations, judge), context.protocol),
        retest=Retests(again=retest("again"), reordered=retest("reordered")),
    )


def _calibration(conversations: Sequence[Conversation], calibration: JudgeCalibration) -> CalibrationReport:
    run = calibration.run
    behaviours = {}
    for name, measured in run.record.behaviours.items():
        verdict, reason = standing(run.record, name)
        behaviours[name] = BehaviourStanding(
            **dict(measured),
            strength=run.strength[name],
            standing=verdict,
            reason=reason,
            raters_agreement=run.agreement[name],
            turn_rate=corrected_turn_rate(conversations, run.record, name),
        )
    return CalibrationReport(
        labels=run.record.labels,
        turns=run.turns,
        unread=run.unread,
        raters=run.raters,
        disagreements=len(run.disagreements),
        kinds=run.kinds,
        behaviours=behaviours,
        drift=calibration.drift,
    )
