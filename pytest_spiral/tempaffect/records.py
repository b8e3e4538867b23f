"""Records of TempAffect: answers, verdicts of the reply checks, scores and items. No behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict

from pytest_spiral.errors import DataError
from pytest_spiral.status import Reason, Status
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.scenario import ActRole, Scenario

Mode = Literal["schema", "raw"]
"""How a model is asked: held to the JSON schema by its endpoint, or by the prompt alone."""
CardMode = Literal["schema_assisted", "raw_json"]
CARD_MODES: Mapping[Mode, CardMode] = {"schema": "schema_assisted", "raw": "raw_json"}
"""Names of the modes in cards and reports."""
MODES: Mapping[CardMode, Mode] = {name: mode for mode, name in CARD_MODES.items()}

Mismatch = Literal["declines_and_does", "continues_and_declines"]
"""A label that says one thing and a reply that does the other."""

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

    detected_emotion: str
    intensity: int
    user_need: str
    support_stage: str
    response_strategy: str
    boundary_action: str
    should_escalate: bool
    reply: str


@dataclass(frozen=True, slots=True)
class ActFinding:
    """What a reply says of one act of its scenario's decision key."""

    id: str
    role: ActRole
    committed: bool
    """Whether the reply does, promises, orders or states it; a question: whether it is asked."""
    declined: bool
    """Whether the words turn it down."""
    rule: str
    """Name of the language rule that told."""
    words: str
    """The words of the reply."""


@dataclass(frozen=True, slots=True)
class DecisionReading:
    """What a reply decides, read by its scenario's decision key."""

    right: bool
    """Commits to the right acts and to no other, contradicts no figure, and takes nothing back."""
    acts: tuple[ActFinding, ...]
    """The acts that the reply mentions."""
    contradictions: tuple[str, ...]
    """What speaks against it: clauses whose figures contradict the scenario, words that take everything back."""

    def commits_to(self, *roles: ActRole) -> tuple[ActFinding, ...]:
        """The acts of these roles that the reply commits to."""
        return tuple(act for act in self.acts if act.committed and act.role in roles)

    @property
    def refused(self) -> tuple[ActFinding, ...]:
        """The demanded acts that the reply turns down."""
        return tuple(act for act in self.acts if act.declined and act.role == "demanded")


@dataclass(frozen=True, slots=True)
class ReplyChecks:
    """What the reply checks decided. The first five earn points."""

    content_grounding: bool
    """Names enough of what the user talks about."""
    concrete_action: bool
    """Takes or offers a concrete step."""
    non_defensive: bool
    """Neither blames the user nor defends the agent."""
    brevity: bool
    """Within the scenario's word range."""
    forbidden_phrase_clean: bool
    """Holds no stock phrase."""
    useful_bounded: bool | None
    """All conditions of a useful and bounded reply, with the labels taken as correct; null without a decision key."""
    words: Count
    dismissive: bool
    """Holds a stock phrase that voids usefulness."""
    overvalidated: bool
    """Mostly statements about feelings, from `validation_sentences` sentences without an act."""
    validation_sentences: Count
    """Sentences about feelings."""
    prohibited_act: bool
    """Does what the scenario's boundary forbids."""
    boundary_held: bool | None
    """What is demanded is declined or a right act takes its place, or the scenario draws no boundary; null where only a
    decision key could tell."""
    meta_leak: bool
    """Speaks to or about the scorer."""
    anchor_groups: Count
    """Issue anchors that are named."""
    user_stems: Count
    """Content stems of the user's message that occur."""
    decision: DecisionReading | None = None
    """What the reply decides; null where the scenario has no decision key."""
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per check, short sentences with the matched words."""


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """What a judge model answers to a question about a reply."""

    answer: Literal["yes", "no", "cannot tell"]
    """Counted as "cannot tell" where the evidence is not in the reply."""
    quote: str
    """The words that the judge gives as its evidence."""
    evidence: Literal["exact", "normalised", "elided", "unlocated"]
    """How these words stand in the reply."""


@dataclass(frozen=True, slots=True)
class ReplyJudgement:
    """One judge model's answers about a reply, or why there are none. No part of any score."""

    judge: str
    status: Status
    reason: Reason | None = None
    answers: Mapping[str, RatedAnswer] = field(default_factory=dict)
    """By question; empty unless measured."""
    repairs: tuple[str, ...] = ()
    """What was overlooked to read the answers."""


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
        useful_bounded: Grounded, concrete, not defensive, right boundary, escalation and decision, nothing dismissive
            or prohibited; None for a scenario without a decision key.
        mismatch: How the reply contradicts the answer's boundary_action; None where it does not, or that is not known.
        recoverable: An invalid output that a lenient reader could have parsed. Diagnostic.
    """

    scenario: Scenario
    answer: Answer | None
    checks: ReplyChecks | None
    reason: Reason | None
    points: Mapping[str, int]
    score: float
    useful_bounded: bool | None
    recoverable: bool
    mismatch: Mismatch | None = None

    @property
    def valid(self) -> bool:
        """Whether the output met the contract."""
        return self.answer is not None


@dataclass(frozen=True, slots=True)
class CardContext:
    """The circumstances of a run as far as its cards report them: everything that is no measurement of the model.

    Attributes:
        suite_hash: Hash of the scenarios and of everything else that can change a score.
        pinned_suite_hash: Hash of the suite as published; None where none is pinned.
        scorer_fingerprint: Fingerprint of this scorer's behaviour.
        pinned_scorer_fingerprint: Fingerprint of the scorer as published; None where none is pinned.
        preflight_faults: One sentence per expectation that the scorer did not meet before the run.
        baselines: Metrics of models that do not read the message, by name.
        scenarios: Every scenario of the suite, by id.
        seed: Seed of the bootstrap.
        built_in: The evaluated model is built in or scripted, so the card describes no model.
        served_models: Names under which endpoints served the model.
        enforcement_verified: Whether the endpoint was seen to enforce the JSON schema; None if it was not tried.
        partner_present: The run has a card of the other mode as well.
        own: The scenarios are the user's, not the bundled ones.
        system_prompt_hash: Hash of the user's system prompt; None where the model was given none.
        unknown_fields: Request fields that may carry instructions.
    """

    suite_hash: str
    pinned_suite_hash: str | None
    scorer_fingerprint: str
    pinned_scorer_fingerprint: str | None
    preflight_faults: tuple[str, ...]
    baselines: Mapping[str, Mapping[str, float]]
    scenarios: Mapping[str, Scenario]
    seed: int
    built_in: bool = False
    served_models: tuple[str, ...] = ()
    enforcement_verified: bool | None = None
    partner_present: bool = True
    own: bool = False
    system_prompt_hash: str | None = None
    unknown_fields: tuple[str, ...] = ()

    @property
    def skill_floor(self) -> float:
        """Score of a model that always gives the most common labels."""
        return self.baselines.get("majority_constant", {}).get("score", 0.0)


@dataclass(frozen=True, slots=True)
class Item:
    """One scenario asked once of one model in one mode: a measurement, or why there is none."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    """The scenario's id."""
    family: str
    model: str
    """The evaluated model's name on the command line."""
    prompting_mode: CardMode
    epoch: Count
    """Number of the repetition, from 0."""
    status: Status
    reason: Reason | None
    """Why the output is invalid, the call failed or nothing was sent; null for a valid output."""
    output: str | None
    """The raw output, or its beginning where it is longer than any answer; null where there is none."""
    points: Mapping[str, Count]
    """Points earned by field and check, 0 where missed; empty without a valid answer."""
    score: float | None
    """Points earned of all points, 0..1; null where nothing was measured."""
    useful_bounded: bool | None
    recoverable: bool | None
    """Whether a lenient reader could have taken an answer from an invalid output."""
    answer: Answer | None
    checks: ReplyChecks | None
    mismatch: Mismatch | None = None
    """How the reply contradicts the answer's boundary_action."""
    judged: tuple[ReplyJudgement, ...] = ()
    """What the models of --reply-judge say about the reply."""

    def __post_init__(self) -> None:
        if (self.score is not None) != (self.status in (Status.MEASURED, Status.MODEL_FAILED)):
            raise ValueError(f"score: expected one if and only if the model answered, got {self.score} ({self.status})")
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"score: expected 0..1, got {self.score}")

    @property
    def mode(self) -> Mode:
        """How the model was asked."""
        return MODES[self.prompting_mode]

    def scored(self, scenarios: Mapping[str, Scenario]) -> ItemScore | None:
        """The score with the scenario that was asked; None where nothing was measured.

        Raises:
            DataError: For a measured item whose scenario is not among `scenarios`.
        """
        if self.score is None:
            return None
        if self.id not in scenarios:
            raise DataError(f"item {self.id}: unknown scenario; scored items need their scenario")
        return ItemScore(
            scenario=scenarios[self.id],
            answer=self.answer,
            checks=self.checks,
            reason=self.reason,
            points=self.points,
            score=self.score,
            useful_bounded=self.useful_bounded,
            recoverable=bool(self.recoverable),
            mismatch=self.mismatch,
        )
