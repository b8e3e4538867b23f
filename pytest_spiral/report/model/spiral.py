"""Spiral-Bench's part of the report: scores and conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_spiral.chat import Message
from pytest_spiral.report.model.anchors import Anchors
from pytest_spiral.report.model.base import Hash, Rate, Record
from pytest_spiral.report.model.floor import Floor
from pytest_spiral.report.model.judges import JudgesReport
from pytest_spiral.report.model.prefix import PrefixScore
from pytest_spiral.spiral.records import (
    Abandoned,
    Beginning,
    ChunkJudgement,
    Conversation,
    FinalJudgement,
    Finding,
    Flag,
    Origin,
    Retest,
)
from pytest_spiral.stats import VarianceSummary
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.tables import Count

Measurement = Literal["conversation", "chunk", "final"]


class MetricScore(Record):
    """One metric over all items."""

    kind: Literal["behaviour", "final"]
    sign: Literal["protective", "risky", "informational"]
    weight: float
    mean: float | None
    """Strength per chunk or per 10,000 characters, or 0..10 for a final score; null where nothing was measured."""
    mean_all: float
    """The same with every item counted, an absent metric as 0."""
    norm: Rate | None
    contribution: Rate | None
    """The normalised metric in the direction of the score."""
    ci_low: float | None
    """Two-sided 95 % interval of the mean."""
    ci_high: float | None
    se: float | None
    n_items: Count
    """Items in the mean."""
    n_findings: Count
    """Of all judges."""
    worst_decile: float | None
    """Mean over the worst tenth of the conversations."""


class CategoryScore(Record):
    """Composite and means of one category; descriptive, without interval."""

    score: float | None
    n_items: Count
    means: Mapping[str, float | None]


class Tails(Record):
    """What a mean hides. Rates are means over the judges, counts say what any judge saw; bounds are one-sided, 95 %."""

    harm: str
    """The behaviour that counts as harm."""
    any_strength3_harm: Rate | None
    """Share of conversations with a finding of strength 3."""
    any_strength3_harm_ci_low: Rate | None
    any_strength3_harm_ci_high: Rate | None
    harmful: Count
    """Conversations with a finding of strength 3."""
    of: Count
    """Conversations measured, and those that broke off after such a finding."""
    any_harm: Rate | None
    """Share of conversations with a finding of any strength."""
    any_harm_ci_low: Rate | None
    any_harm_ci_high: Rate | None
    harm_turns: Count
    """Judged turns with a finding of any strength."""
    worst_decile_score: float | None
    """Mean composite of the worst tenth of the conversations, rounded up to a whole conversation."""
    worst_conversation: str | None


class HeadlineNumber(Record):
    """A number that leads a score; null where it was not measured."""

    value: float | None
    ci_low: float | None
    ci_high: float | None
    se: float | None


class Headline(Record):
    """What leads a score: no act pays for another one, and no mean hides a disaster. 95 % intervals are two-sided."""

    risk: HeadlineNumber
    """Mean strength of the strongest risky finding of a turn, 0..100."""
    protection: HeadlineNumber
    """Calls for protection that a reply without risky findings met, 0..100; null where judges do not mark them."""
    nagging: HeadlineNumber
    """Turns that call for no protection and get a clear protective act, 0..100; null as above."""
    worst: HeadlineNumber
    """Share of conversations with harm or reinforcement of strength 3, 0..1; bounds are one-sided. What was said in
    abandoned attempts at a conversation counts."""
    worst_conversations: Count
    """Such conversations, as any judge saw them."""
    worst_of: Count | None = None
    """Of how many: those measured, and those that broke off after such a finding. Null in earlier reports."""


class Trajectory(Record):
    """The course of the protocol's reinforcement behaviour over a conversation.

    Slope and thirds are means over the judges; a first finding is that of any judge.
    """

    behaviour: str
    slope: float | None
    """Mean least-squares slope, in the metric's unit per turn."""
    slope_ci_low: float | None
    slope_ci_high: float | None
    thirds: tuple[float | None, float | None, float | None]
    """Means of the first, middle and last third of the judged turns."""
    first: Mapping[int, Count]
    """Conversations by the turn, from 0, of their first finding."""
    events: Count
    """Conversations with a finding."""
    censored: Count
    """Conversations that ended without one."""
    median_turn: int | None
    """First turn by which the Kaplan-Meier estimate of having no finding is at most one half; null if never."""


class Missing(Record):
    """What was to be measured and was not. Each judge's judgements count by themselves."""

    conversations: Count
    of_conversations: Count
    chunks: Count
    of_chunks: Count
    finals: Count
    of_finals: Count
    first_turns: Count
    """Replies to the opening that an imported record never judged; not counted as missing chunks."""
    reasons: Mapping[Measurement, Mapping[ReasonCode, Count]]


class ProtocolScore(Record):
    """The score of one model's conversations under one protocol."""

    model: str
    protocol: str
    protocol_hash: Hash
    score: Annotated[float, Field(ge=0, le=100)] | None
    """Higher is better, rounded as the protocol says; null where a metric that it needs was not measured."""
    unrounded: float | None
    ci_low: float | None
    """Two-sided 95 % interval of the unrounded score."""
    ci_high: float | None
    se: float | None
    ci_method: str
    n_items: Count
    n_conversations: Count
    turns: Mapping[int, Count] = {}
    """Measured conversations by their number of turns, which are replies of the model."""
    metrics: Mapping[str, MetricScore]
    categories: Mapping[str, CategoryScore]
    tails: Tails
    headline: Headline | None = None
    """Null under a protocol that counts stated sums, where judges leave no verdict, and in earlier reports."""
    trajectory: Trajectory | None
    """Null where it could not be computed."""
    evidence: Mapping[str, Count]
    ignored: Mapping[str, Count]
    """Findings that did not count: unlocated, unknown_behaviour, weak, repeated (in one reply, which counts once)."""
    missing: Missing


class SchemeScore(Record):
    """The score of the same judgements under another protocol."""

    name: str
    """As it is shown."""
    protocol: str
    protocol_hash: Hash
    score: float | None
    """0..100, higher is better; null where a metric that it needs was not measured."""
    ci_low: float | None
    """Two-sided 95 % interval."""
    ci_high: float | None
    se: float | None
    at_half_length: float | None
    """The score with the same findings in replies half as long."""
    at_double_length: float | None
    """The score with the same findings in replies twice as long."""


class OverCorrection(Record):
    """What a model does on innocent twins of the openings."""

    conversations: Count
    of_conversations: Count
    turns: Count
    """Judged turns of the twins."""
    share: Rate | None
    """Over-corrected turns, mean over prompts."""
    ci_low: Rate | None
    ci_high: Rate | None
    why: Mapping[str, Rate | None]
    """Share of turns by reason, mean over prompts; a turn may have several."""
    originals: Rate | None
    """The share on as many first turns of the openings with a twin, where much of it is called for."""

    @property
    def number(self) -> HeadlineNumber:
        """The share with its interval."""
        return HeadlineNumber(value=self.share, ci_low=self.ci_low, ci_high=self.ci_high, se=None)


class SimulatorHealth(Record):
    """How the simulated user played its role."""

    messages: Count
    """Generated messages."""
    median_chars: Count | None
    longest_chars: Count | None
    flagged: Count
    """Messages with at least one flag."""
    flagged_share: Rate | None
    broken: Count
    """Messages that count against publication."""
    rules: Mapping[str, Count]
    simulations: Count
    """Conversations started, repeated simulations included."""
    collapsed: Count
    """Simulations given up because the simulated user stopped playing its role."""
    lost: Count
    """Conversations without a simulation that held."""
    no_message: Count
    """Conversations that ended for want of a message."""
    reasons: tuple[Reason, ...]


class Score(ProtocolScore):
    """The score of one model, with everything a reader must know before using it."""

    @property
    def leading(self) -> Mapping[str, HeadlineNumber]:
        """The numbers that lead the score, and over-correction; nothing under protocols that have none."""
        if self.headline is None:
            return {}
        names = ("risk", "protection", "worst", "nagging")
        found: dict[str, HeadlineNumber] = {name: getattr(self.headline, name) for name in names}
        if (over := self.over_correction) is not None:
            found["over_correction"] = over.number
        return found

    skill: HeadlineNumber | None = None
    """(score - floor) / (100 - floor), at most 1, on the prompts that all have; null without a floor."""
    wrapped: bool = False
    """Whether the model was given a system prompt of the user's."""
    by_protocol: Mapping[str, SchemeScore] = {}
    """`per_10k`: the scheme of the source document; empty for other protocols than per-turn."""
    variance: VarianceSummary | None
    judges: JudgesReport
    over_correction: OverCorrection | None
    """Null where no twin was run, and where judges leave no verdict."""
    prefix: PrefixScore | None = None
    """Null for conversations from their opening on, and where judges leave no verdict."""
    repeated_replies: Rate | None = None
    """Share of the model's replies that are mostly or wholly made of its other replies; null for too few to say."""
    simulator_health: SimulatorHealth | None
    """Null where it could not be computed."""
    counts: Mapping[Status, Count]
    """Conversations by status, twins excluded."""
    blockers: tuple[str, ...]
    """Why the score may not be published."""
    publication_ready: bool


class WeightRange(Record):
    """Where 95 % of a model's composites lie under perturbed weights."""

    model: str
    low: float
    high: float


class OrderStability(Record):
    """How often one model stays above another under perturbed weights."""

    above: str
    """The one with the higher composite."""
    below: str
    holds: Rate


class WeightStability(Record):
    """Composites under perturbed weights: weights are value judgements, and others would have chosen others."""

    draws: Count
    factor: float
    """Each weight is multiplied by a log-normal number whose logarithm has the standard deviation ln(factor)."""
    ranges: tuple[WeightRange, ...]
    orders: tuple[OrderStability, ...]
    """One per pair of models."""


class SimulatorFlags(Record):
    """What there is to say about the simulated user of one conversation."""

    flags: tuple[Flag, ...]


class SuspiciousPassage(Record):
    """A passage of a reply that may address the judge or the simulated user."""

    turn: Count
    """Assistant message, counted from 0."""
    kind: Literal["verdict", "fence", "role", "instruction", "note", "encoded", "invisible"]
    start: Count
    end: Count
    """Exclusive."""


class ConversationRecord(Record):
    """One conversation as recorded, followed by what is derived from it."""

    id: str
    prompt_id: str
    category: str
    model: str
    index: Count
    """Which of the conversations on this prompt, from 0."""
    status: Status
    reason: Reason | None
    """Why the status is not `measured`."""
    prompts: tuple[str | None, ...]
    """Scripted user messages, the opening first; null stands for a generated one."""
    transcript: tuple[Message, ...]
    injections_log: tuple[str, ...]
    """One entry per message, empty where nothing was injected."""
    behaviours: tuple[str, ...]
    """Behaviours that the judges were asked about, where all measured judgements have the same; empty otherwise."""
    judgements: tuple[ChunkJudgement, ...]
    """One per chunk and judge; `behaviours` lists those besides the conversation's."""
    finals: tuple[FinalJudgement, ...]
    """One per judge."""
    twin_of: str
    """The prompt of which this one is the innocent twin; empty for none. Twins enter no composite."""
    given_up: tuple[Reason, ...]
    """Why earlier simulations of this conversation were given up."""
    abandoned: tuple[Abandoned, ...] = ()
    """Those simulations, of which only the worst counts; empty in reports of earlier versions."""
    retests: tuple[Retest, ...]
    origin: Count
    """Place in `origins`, from 0."""
    final_judgement: Mapping[str, Annotated[float, Field(ge=0, le=10)]] | None
    """Mean final scores of the judges; null without any."""
    simulator: SimulatorFlags
    suspicions: tuple[SuspiciousPassage, ...]
    beginning: Beginning | None = None
    """What the model was shown before the transcript; null for a conversation from its opening on."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of all judges, in the order of the judgements."""
        return tuple(finding for judgement in self.judgements for finding in judgement.findings)

    @property
    def lost_judgements(self) -> tuple[ChunkJudgement | FinalJudgement, ...]:
        """Those that are missing."""
        every: tuple[ChunkJudgement | FinalJudgement, ...] = (*self.judgements, *self.finals)
        return tuple(judgement for judgement in every if judgement.status is not Status.MEASURED)


class Spiral(Record):
    """The suite's part of the report; empty where it did not run."""

    scores: tuple[Score, ...] = ()
    weights: WeightStability | None = None
    """Null without a measured score."""
    origins: tuple[Origin, ...] = ()
    """Files, models and system prompts that conversations were made with, each once."""
    conversations: tuple[ConversationRecord, ...] = ()
    floor: Floor | None = None
    """What models that do nothing get; null where it is not known, which `--floors` changes."""
    anchors: Anchors | None = None
    """What the judges said about fixed turns; null where they were not asked, and in reports of earlier versions."""

    @model_validator(mode="after")
    def _every_origin_is_there(self) -> Spiral:
        for number, row in enumerate(self.conversations):
            if row.origin >= len(self.origins):
                raise ValueError(f"conversations.{number}.origin: expected a number below {len(self.origins)}")
        return self

    def recorded(self) -> Iterator[Conversation]:
        """The conversations as they were evaluated."""
        names = [field.name for field in fields(Conversation)]
        for row in self.conversations:
            judgements = tuple(
                replace(one, behaviours=row.behaviours + one.behaviours) if one.status is Status.MEASURED else one
                for one in row.judgements
            )
            values = {name: getattr(row, name) for name in names}
            yield Conversation(**{**values, "judgements": judgements, "origin": self.origins[row.origin]})
