"""The scenario: what is asked of the model and what a right answer holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

T = TypeVar("T")

# fmt: off
Emotion = Literal[
    "anger", "frustration", "anxiety", "fear", "sadness", "disappointment", "guilt", "embarrassment", "overwhelm",
    "confusion", "distrust", "desperation", "relief", "neutral",
]
UserNeed = Literal[
    "accountability", "specific_action", "reassurance", "clarification", "decision_support", "space", "safety_support",
]
SupportStage = Literal["receive", "clarify", "act", "repair", "close"]
ResponseStrategy = Literal[
    "acknowledge_and_correct", "calmly_clarify", "validate_then_plan", "set_boundary_with_alternative",
    "ask_one_question", "escalate",
]
BoundaryAction = Literal["continue_helping", "decline_with_alternative", "refuse", "escalate"]
ActionForm = Literal[
    "commit", "imperative", "instructive", "done", "artifact", "need_request", "direct_answer", "question",
]
Register = Literal["formal", "plain", "terse", "non_native", "dialect", "sarcastic", "all_caps"]
PowerRelation = Literal["customer", "boss", "subordinate", "patient_relative", "citizen", "peer", "child_guardian"]
ActRole = Literal["right", "wrong", "demanded", "impossible", "ask"]
Trait = Literal[
    "emotion_incongruent", "mixed_emotion", "calm_high_stakes", "loud_trivial", "pushy_legitimate",
    "user_partly_wrong",
]
# fmt: on

_DEFAULT_FORMS: tuple[ActionForm, ...] = ("commit", "imperative", "instructive", "done", "artifact")

_Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Slug = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
_Flag = Annotated[bool, Field(strict=True)]
Intensity = Annotated[int, Field(ge=1, le=5, strict=True)]
WordCount = Annotated[int, Field(ge=1, strict=True)]
_Wording = Annotated[str, StringConstraints(min_length=1, max_length=60, strip_whitespace=True)]
_Slot = Annotated[tuple[_Wording, ...], Field(min_length=1, max_length=40)]
"""Wordings of which one must be found."""
Slots = Annotated[tuple[_Slot, ...], Field(min_length=2, max_length=6)]
"""All must be found: a single slot would not tell what is acted on."""


@lru_cache(maxsize=16_384)
def _shared(value: T) -> T:
    return value


Shared = AfterValidator(_shared)
"""Equal values are one object: large suites are made from templates, and keys are most of what scenarios take."""


class Family(StrEnum):
    """The three families of TempAffect 1."""

    PRACTICAL_SUPPORT = "practical_support_under_affect"
    PRESSURED_INTEGRITY = "pressured_integrity"
    REPAIR = "repair_after_mistake"


# Parts of a scenario are dataclasses: as pydantic's models, those of 10,000 scenarios would take 45 MB more.
# Pydantic reads them as strictly as the scenario that holds them.
@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One thing the user talks about, with the wordings that name it."""

    id: Slug
    core: _Flag
    any: Annotated[tuple[_Text, ...], Field(min_length=1)]
    """Alternatives of one to three tokens, matched on stems."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForbiddenPhrase:
    """A stock phrase. "dismissive" voids usefulness, "boilerplate" costs its own point only."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    text: _Text
    severity: Literal["dismissive", "boilerplate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySpec:
    """What the reply checks look for in one scenario."""

    issue_anchors: Annotated[tuple[Anchor, ...], Field(min_length=1)]
    min_anchor_groups: Annotated[int, Field(ge=1, le=4, strict=True)] = 2
    action_targets: tuple[_Text, ...] = ()
    action_forms: Annotated[tuple[ActionForm, ...], Field(min_length=1)] = _DEFAULT_FORMS
    prohibited_acts: tuple[_Text, ...] = ()
    word_range: tuple[WordCount, WordCount]
    """Fewest and most words, inclusive."""
    forbidden_phrases: tuple[ForbiddenPhrase, ...] | None = None
    """The complete list for this scenario; None means the shipped list."""
    extra_forbidden_phrases: tuple[ForbiddenPhrase, ...] = ()
    """Phrases banned in this scenario on top of the list."""

    def __post_init__(self) -> None:
        if self.word_range[0] > self.word_range[1]:
            raise ValueError("word_range: the first number must not exceed the second")
        if self.min_anchor_groups > len(self.issue_anchors):
            raise ValueError("min_anchor_groups exceeds the number of issue_anchors")
        if not any(anchor.core for anchor in self.issue_anchors):
            raise ValueError("issue_anchors: at least one group must be core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One thing that a reply may decide to do here, with the wordings that name it.

    Attributes:
        role: "right" and "ask": what a right reply decides; "wrong": possible, but not for this person; "demanded":
            asked for and not to be done; "impossible": a promise that the situation rules out.
        what: The act, for people.
        why: Why it is wrong, for people.
        says: Patterns, of which one must be found.
    """

    id: Slug
    role: ActRole
    what: _Text
    why: str = ""
    says: Annotated[tuple[Annotated[Slots, Shared], ...], Field(min_length=1, max_length=16)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Figures that a sentence about something must not contradict, in the forms in which they may be written."""

    about: Slots
    figures: Annotated[tuple[_Wording, ...], Field(min_length=1, max_length=40)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a right reply decides.

    Attributes:
        right: Ids of acts in groups; of each group the reply commits to at least one.
    """

    acts: Annotated[tuple[Act, ...], Field(min_length=1, max_length=24)]
    right: Annotated[tuple[Annotated[tuple[Slug, ...], Field(min_length=1)], ...], Field(min_length=1, max_length=8)]
    facts: Annotated[tuple[Fact, ...], Field(max_length=16)] = ()

    def __post_init__(self) -> None:
        ids = [act.id for act in self.acts]
        if len(set(ids)) < len(ids):
            raise ValueError("acts: every act needs an id of its own")
        good = {act.id for act in self.acts if act.role in ("right", "ask")}
        for name in (name for group in self.right for name in group if name not in good):
            raise ValueError(f"right: {name!r} is not the id of an act with role right or ask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The key: accepted values per field."""

    detected_emotion: Annotated[tuple[Emotion, ...], Field(min_length=1, max_length=3)]
    intensity: tuple[Intensity, Intensity]
    """Lowest and highest accepted intensity, inclusive, on the 1-5 scale."""
    user_need: Annotated[tuple[UserNeed, ...], Field(min_length=1, max_length=2)]
    response_strategy: Annotated[tuple[ResponseStrategy, ...], Field(min_length=1, max_length=2)]
    support_stage: Annotated[tuple[SupportStage, ...], Field(min_length=1, max_length=2)]
    boundary_action: BoundaryAction
    should_escalate: _Flag
    reply: Annotated[ReplySpec, Shared]
    decision: Annotated[Decision, Shared] | None = None
    """What a right reply decides; None where nobody has written it down."""

    def __post_init__(self) -> None:
        if self.intensity[0] > self.intensity[1]:
            raise ValueError("intensity: the first number must not exceed the second")
        if self.boundary_action == "escalate" and not self.should_escalate:
            raise ValueError("boundary_action is escalate but should_escalate is false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """How the scenario sits in the blueprint. Never shown to a model, never scored."""

    domain: Slug
    register_: Annotated[Register, Field(alias="register")]
    power_relation: PowerRelation
    traits: tuple[Trait, ...] = ()


class Scenario(BaseModel):
    """One single-turn situation with its key. `Scenario.model_validate(dict)` reads the published shape."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    id: Slug
    canary: str = ""
    """Marks the text as benchmark data, so that it can be kept out of training sets."""
    family: Family
    meta: Meta | None = None
    agent_role: _Text
    agent_context: _Text
    user_message: _Text
    expected: Expected
    rationale: str = ""
    reference_reply: str = ""

    def __hash__(self) -> int:
        """Hash what tells scenarios apart, not the key: what is compiled of a scenario is looked up for every reply."""
        return hash((self.id, self.agent_context, self.user_message))
