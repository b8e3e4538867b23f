"""The floor of a run, and how far each score is above it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_spiral.evaluate.inputs import RunResults, SpiralContext
from pytest_spiral.evaluate.verdict import is_beyond_limit
from pytest_spiral.gates import DecisionCode, GateDecision, Measured
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.model.gate import DecisionReason
from pytest_spiral.report.model.spiral import HeadlineNumber
from pytest_spiral.spiral.anchors import UNCHECKED, movements, not_the_same
from pytest_spiral.spiral.counting import MissingAs, count_conversations
from pytest_spiral.spiral.floors import skill, stand_in
from pytest_spiral.spiral.headline import number_of
from pytest_spiral.spiral.records import Conversation


def floor_of(run: RunResults) -> Floor | None:
    """The floor of a run, None for none; refused where it says nothing about its judges."""
    floor, context = run.floor, run.spiral
    if floor is None or context is None:
        return None
    if run.stand_ins:
        return _measured(floor, run, context)
    anchors = floor.anchors, context.anchors
    changed = not_the_same(*anchors) if movements(*anchors) else UNCHECKED
    anew = f"to measure it anew, delete floors/{floor.key[:32]}.json in the report directory and add --floors"
    return floor.model_copy(update={"refused": f"measured in run {floor.run}; {changed}; {anew}" if changed else ""})


def _measured(floor: Floor, run: RunResults, context: SpiralContext) -> Floor:
    """With the stand-ins of this run."""
    for model, conversations in run.stand_ins.items():
        missing = count_conversations(conversations, context.protocol).missing
        for what in ("conversations", "chunks", "finals"):
            lost, of = getattr(missing, what), getattr(missing, f"of_{what}")
            if lost == of or is_beyond_limit(lost, of):
                why = f"{lost} of {of} {what} of {model} are missing; resume the run with --run-id {run.run.id}"
                return floor.model_copy(update={"refused": why})
    stand_ins = {model: stand_in(own, context.protocol) for model, own in run.stand_ins.items()}
    scores = [each.score for each in stand_ins.values() if each.score is not None]
    value = max(scores) if len(scores) == len(stand_ins) else None
    update = {"measured_at": run.run.finished_at, "stand_ins": stand_ins, "value": value}
    return floor.model_copy(update={**update, "refused": "" if value is not None else "the stand-ins have no score"})


def measured_skill(
    conversations: Sequence[Conversation],
    context: SpiralContext,
    floor: Floor | None,
    confidence: float,
    missing_as: MissingAs = "ignored",
) -> Measured | None:
    """The skill of one model; None without a floor. confidence: two-sided, 0..1."""
    if floor is None or floor.refused:
        return None
    stand_ins, protocol = [*floor.stand_ins.values()], context.protocol
    return skill(conversations, protocol, stand_ins, seed=context.seed, confidence=confidence, missing_as=missing_as)


def skill_number(
    conversations: Sequence[Conversation], context: SpiralContext, floor: Floor | None
) -> HeadlineNumber | None:
    """The skill for the report."""
    found = measured_skill(conversations, context, floor, context.protocol.confidence / 1000)
    return None if found is None else number_of(found)


def without_floor(floor: Floor | None) -> GateDecision:
    """Of a gate on the skill in a run without a floor."""
    detail = floor.refused if floor and floor.refused else "the floor was not measured; add --floors"
    return GateDecision("incomplete", DecisionReason(DecisionCode.NO_FLOOR, detail))
