"""TempAffect's part of the report: cards, differences between prompting modes, items and their scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_spiral.report.model.base import Count, Hash, Rate, Record, Text
from pytest_spiral.report.model.gate import PromptingMode
from pytest_spiral.report.model.variance import Variance
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.tempaffect.scenario import Scenario

__all__ = [
    "AnswerRecord",
    "Card",
    "CardIntegrity",
    "ChecksRecord",
    "DeltaMetric",
    "Detector",
    "FamilyScores",
    "ItemRecord",
    "MetricInterval",
    "MissingItems",
    "ModeDelta",
    "TempAffect",
]

Rates = Mapping[str, Rate | None]


class FamilyScores(Record):
    """One family of scenarios on a card."""

    n: Count
    """Scenarios scored."""
    score: Rate | None
    useful_bounded_response_rate: Rate | None
    band: Literal["strong", "solid", "mixed", "weak"] | None
    """Band of the useful-and-bounded rate."""
    fields: Rates
    reply_checks: Rates


class Detector(Record):
    """A pattern over all replies of a card."""

    value: Rate | None
    """Null where there are too few valid replies."""
    band: Literal["ok", "watch", "flag", "not_enough_replies"]
    n: Count
    """Valid replies."""
    long_frame_share: Rate | None = None
    """Replies that share a long frame with several others; template repetition only."""


class MetricInterval(Record):
    """Two-sided 95 % confidence interval of one metric."""

    low: float
    high: float
    method: str
    n: Count
    """Independent units."""
    k: Count | None = None
    """Units that count, where the metric is a rate of single measurements."""


class MissingItems(Record):
    """Measurements that were to be made and were not."""

    n: Count
    of: Count
    ids: tuple[str, ...]
    """Scenarios concerned."""


class CardIntegrity(Record):
    """Whether a card may be published, and what stands in the way."""

    suite_hash: Hash
    scorer_fingerprint: Hash
    scenarios: Count
    """Scenarios scored."""
    expected_scenarios: Count
    valid_output_rate: Rate | None
    enforcement_verified: bool | None
    """Whether the endpoint was seen to enforce the JSON schema; null in raw mode."""
    served_models: tuple[str, ...]
    """Names under which endpoints served the model."""
    publication_blockers: tuple[str, ...]
    publication_ready: bool


class Card(Record):
    """One model in one prompting mode. Every rate lies in 0..1 and is null where nothing was measured."""

    model: str
    prompting_mode: PromptingMode
    score: Rate | None
    """Mean share of the points earned; an invalid output earns none."""
    skill: float | None
    """The score above the most common labels: 0 for always giving those, 1 for perfect."""
    valid_output_rate: Rate | None
    useful_bounded_response_rate: Rate | None
    ubr_rate_deduped: Rate | None
    """The useful-and-bounded rate with repeated templates counted as failures."""
    fields: Rates
    reply_checks: Rates
    families: Mapping[str, FamilyScores]
    detectors: Mapping[str, Detector]
    intervals: Mapping[str, MetricInterval]
    """By path of the metric on the card."""
    given_valid: Rates
    """The same rates over valid outputs only: what the format cost."""
    balanced_accuracy: Rates
    recoverable_format_rate: Rate | None
    """Invalid outputs from which a lenient reader could have taken an answer."""
    variance: Mapping[str, Variance | None]
    baselines: Mapping[str, Mapping[str, float]]
    """Metrics of strategies that do not read the message."""
    counts: Mapping[Status, Count]
    epochs: Annotated[int, Field(ge=1)]
    missing: MissingItems
    reasons: Mapping[ReasonCode, Count]
    """How often each reason occurred."""
    integrity: CardIntegrity
    cautions: tuple[str, ...]


class DeltaMetric(Record):
    """Schema-assisted minus raw for one metric, paired by scenario; the three parts add up to the value."""

    value: Annotated[float, Field(ge=-1, le=1)]
    low: float
    high: float
    method: str
    format_part: float
    """From items valid with the schema only."""
    content_part: float
    """From items valid in both modes."""
    lost_part: float
    """From items valid without the schema only."""
    n: Count
    """Pairs."""


class ModeDelta(Record):
    """What the enforced schema changed for one model; no metrics where no item was scored in both modes."""

    model: str
    metrics: Mapping[str, DeltaMetric]


class AnswerRecord(Record):
    """A valid answer: seven labels and the reply."""

    detected_emotion: str
    intensity: int
    user_need: str
    support_stage: str
    response_strategy: str
    boundary_action: str
    should_escalate: bool
    reply: Text


class ChecksRecord(Record):
    """What the reply checks decided. The first five earn points."""

    content_grounding: bool
    concrete_action: bool
    non_defensive: bool
    brevity: bool
    forbidden_phrase_clean: bool
    useful_bounded: bool
    """With the labels taken as correct."""
    words: Count
    dismissive: bool
    overvalidated: bool
    validation_sentences: Count
    prohibited_act: bool
    boundary_held: bool
    meta_leak: bool
    anchor_groups: Count
    user_stems: Count
    reasons: Mapping[str, tuple[Text, ...]]
    """By check, for people."""


class ItemRecord(Record):
    """One scenario asked once of one model in one prompting mode."""

    id: str
    family: str
    model: str
    prompting_mode: PromptingMode
    epoch: Count
    status: Status
    reason: Reason | None
    """Why the status is not `measured`."""
    output: Text | None
    """The raw output; null where there is none."""
    points: Mapping[str, Count]
    """Weights earned by field and check, 0 where missed; empty for an invalid output."""
    score: Rate | None
    useful_bounded: bool | None
    recoverable: bool | None
    """Whether a lenient reader could have taken an answer from an invalid output."""
    answer: AnswerRecord | None
    checks: ChecksRecord | None

    @model_validator(mode="after")
    def _scored_only_if_answered(self) -> ItemRecord:
        if (self.score is not None) != (self.status in (Status.MEASURED, Status.MODEL_FAILED)):
            raise ValueError(f"score: expected one if and only if the model answered, got {self.score} ({self.status})")
        return self


class TempAffect(Record):
    """The suite's part of the report; empty where it did not run."""

    cards: tuple[Card, ...] = ()
    deltas: tuple[ModeDelta, ...] = ()
    items: tuple[ItemRecord, ...] = ()
    scenarios: Mapping[str, Scenario] = {}
    """The scenarios asked, by id, with their keys."""
