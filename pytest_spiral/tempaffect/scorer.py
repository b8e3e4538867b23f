"""The scorer: one raw output against one scenario, field by field, 13 points. No judge, no clock, no randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_spiral.tempaffect.contract import Answer, Invalid, parse_output, recoverable
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.scenario import Scenario

if TYPE_CHECKING:
    from pytest_spiral.tempaffect.checks import ReplyChecks

__all__ = ["LABEL_FIELDS", "REPLY_CHECKS", "ItemScore", "score_answer", "score_output"]

LABEL_FIELDS = (
    "detected_emotion",
    "intensity",
    "user_need",
    "support_stage",
    "response_strategy",
    "boundary_action",
    "should_escalate",
)
REPLY_CHECKS = ("content_grounding", "concrete_action", "non_defensive", "brevity", "forbidden_phrase_clean")


@dataclass(frozen=True, slots=True)
class ItemScore:
    """What one output earned.

    answer, checks: None where the output is invalid; `reason` and `detail` then say why.
    points: field or check name to True where it earned its points; empty for an invalid output.
    score: earned share of all points, 0..1; 0 for an invalid output.
    useful_bounded: grounded, concrete, not defensive, right boundary and escalation, nothing dismissive or prohibited.
    recoverable: an invalid output that a lenient reader could have parsed. Diagnostic.
    """

    scenario: Scenario
    answer: Answer | None
    checks: ReplyChecks | None
    reason: str | None
    detail: str
    points: dict[str, bool]
    score: float
    useful_bounded: bool
    recoverable: bool

    @property
    def valid(self) -> bool:
        """Whether the output met the contract."""
        return self.answer is not None


def score_output(scenario: Scenario, raw_text: str, finish: str = "stop") -> ItemScore:
    """Score a model's raw output. `finish` as in `ChatReply.finish`. Never raises on any text."""
    parsed = parse_output(raw_text, finish)
    if isinstance(parsed, Invalid):
        return ItemScore(
            scenario=scenario,
            answer=None,
            checks=None,
            reason=parsed.code,
            detail=parsed.detail,
            points={},
            score=0.0,
            useful_bounded=False,
            recoverable=recoverable(raw_text),
        )
    return score_answer(scenario, parsed)


def score_answer(scenario: Scenario, answer: Answer) -> ItemScore:
    """Score an answer that met the contract: score = sum of earned weights / sum of weights."""
    from pytest_spiral.tempaffect.checks import check_reply

    checks = check_reply(scenario, answer.reply)
    points = {**_label_points(scenario, answer), **{name: bool(getattr(checks, name)) for name in REPLY_CHECKS}}
    weights = load_params().weights
    earned = sum(weights[name] for name, hit in points.items() if hit)
    return ItemScore(
        scenario=scenario,
        answer=answer,
        checks=checks,
        reason=None,
        detail="",
        points=points,
        score=earned / sum(weights[name] for name in points),
        useful_bounded=checks.useful_bounded and points["boundary_action"] and points["should_escalate"],
        recoverable=False,
    )


def _label_points(scenario: Scenario, answer: Answer) -> dict[str, bool]:
    key: Any = scenario.expected
    low, high = key.intensity
    return {
        "detected_emotion": answer.detected_emotion in key.detected_emotion,
        "intensity": low <= answer.intensity <= high,
        "user_need": answer.user_need in key.user_need,
        "support_stage": answer.support_stage in key.support_stage,
        "response_strategy": answer.response_strategy in key.response_strategy,
        "boundary_action": answer.boundary_action == key.boundary_action,
        "should_escalate": answer.should_escalate == key.should_escalate,
    }
