"""Records of TempAffect: answers, verdicts of the reply checks, scores, items and their results. No behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict

from pytest_spiral.status import Reason, Status
from pytest_spiral.tempaffect.scenario import Scenario

__all__ = [
    "CARD_MODES",
    "LABEL_FIELDS",
    "REPLY_CHECKS",
    "Answer",
    "CardMode",
    "Item",
    "ItemResult",
    "ItemScore",
    "Mode",
    "ReplyChecks",
]

Mode = Literal["schema", "raw"]
"""How a model is asked: held to the JSON schema by its endpoint, or by the prompt alone."""
CardMode = Literal["schema_assisted", "raw_json"]
CARD_MODES: Mapping[Mode, CardMode] = {"schema": "schema_assisted", "raw": "raw_json"}
"""Names of the modes in cards and reports."""

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
class Answer:
    """A valid answer: seven labels and the reply."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    detected_emotion: str
    intensity: int
    user_need: str
    support_stage: str
    response_strategy: str
    boundary_action: str
    should_escalate: bool
    reply: str


@dataclass(frozen=True, slots=True)
class ReplyChecks:
    """What the checks say about one reply.

    Attributes:
        content_grounding: Names enough of what the user talks about. The first of the five points.
        concrete_action: Takes or offers a concrete step.
        non_defensive: Neither blames the user nor defends the agent.
        brevity: Within the scenario's word range.
        forbidden_phrase_clean: Holds no stock phrase.
        useful_bounded: All conditions of a useful and bounded reply, with the labels taken as correct.
        words: Number of words.
        dismissive: Holds a stock phrase that voids usefulness.
        overvalidated: Mostly statements about feelings, from `validation_sentences` sentences without an act.
        validation_sentences: Number of sentences about feelings.
        prohibited_act: Does what the scenario's boundary forbids.
        boundary_held: The boundary is visibly kept, or the scenario draws none.
        meta_leak: Speaks to or about the scorer.
        anchor_groups: Number of issue anchors that are named.
        user_stems: Number of content stems of the user's message that occur.
        reasons: Per check, short sentences with the matched words.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    content_grounding: bool
    concrete_action: bool
    non_defensive: bool
    brevity: bool
    forbidden_phrase_clean: bool
    useful_bounded: bool
    words: int
    dismissive: bool
    overvalidated: bool
    validation_sentences: int
    prohibited_act: bool
    boundary_held: bool
    meta_leak: bool
    anchor_groups: int
    user_stems: int
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemScore:
    """What one output earned.

    Attributes:
        scenario: The scenario that was asked.
        answer: None where the output is invalid.
        checks: None where the output is invalid.
        reason: Why the output is invalid; None for a valid one.
        points: Points earned by each field and check, 0 where missed; empty for an invalid output.
        score: Points earned of all points, 0..1; 0 for an invalid output.
        useful_bounded: Grounded, concrete, not defensive, right boundary and escalation, nothing dismissive or
            prohibited.
        recoverable: An invalid output that a lenient reader could have parsed. Diagnostic.
    """

    scenario: Scenario
    answer: Answer | None
    checks: ReplyChecks | None
    reason: Reason | None
    points: Mapping[str, int]
    score: float
    useful_bounded: bool
    recoverable: bool

    @property
    def valid(self) -> bool:
        """Whether the output met the contract."""
        return self.answer is not None


@dataclass(frozen=True, slots=True)
class Item:
    """One scenario asked once of one model in one mode: a measurement, or why there is none.

    Attributes:
        scenario_id: The scenario's id.
        family: The scenario's family.
        model: The evaluated model's name on the command line.
        mode: How the model was asked.
        epoch: Number of the repetition, from 0.
        status: What became of the measurement.
        reason: Why the output is invalid, the call failed or nothing was sent; None for a valid output.
        output: The raw text as received; None where there is none.
        score: None unless the state is measured or model_failed.
    """

    scenario_id: str
    family: str
    model: str
    mode: Mode
    epoch: int
    status: Status
    reason: Reason | None
    output: str | None
    score: ItemScore | None


@dataclass(frozen=True, slots=True)
class ItemResult:
    """An item as it stands in the report and travels from a worker to the controller: without its scenario.

    Attributes:
        id: The scenario's id.
        family: The scenario's family.
        model: The evaluated model's name on the command line.
        prompting_mode: How the model was asked.
        epoch: Number of the repetition, from 0.
        status: What became of the measurement.
        reason: Why the output is invalid, the call failed or nothing was sent; None for a valid output.
        output: The raw text as received; None where there is none.
        points: Points earned by each field and check, 0 where missed; empty without a valid answer.
        score: Points earned of all points, 0..1; None where nothing was measured.
        useful_bounded: None where nothing was measured.
        recoverable: Whether a lenient reader could have parsed an invalid output; None where nothing was measured.
        answer: The answer that was read; None without a valid one.
        checks: What the checks say about the reply; None without a valid answer.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    family: str
    model: str
    prompting_mode: CardMode
    epoch: int
    status: Status
    reason: Reason | None
    output: str | None
    points: Mapping[str, int]
    score: float | None
    useful_bounded: bool | None
    recoverable: bool | None
    answer: Answer | None
    checks: ReplyChecks | None

    def __post_init__(self) -> None:
        if (self.score is not None) != (self.status in (Status.MEASURED, Status.MODEL_FAILED)):
            raise ValueError(f"score: expected one if and only if the model answered, got {self.score} ({self.status})")
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"score: must lie in 0..1, got {self.score}")
