"""TempAffect's part of the report: cards, differences between prompting modes, items and their scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from pytest_spiral.report.model.base import Hash, Rate, Record
from pytest_spiral.stats import VarianceSummary
from pytest_spiral.status import ReasonCode, Status
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.records import CardMode, Item
from pytest_spiral.tempaffect.scenario import Scenario

Rates = Mapping[str, Rate | None]


class FamilyScores(Record):
    """One family of scenarios on a card."""

    n: Count
    """Scenarios scored."""
    score: Rate | None
    useful_bounded_response_rate: Rate | None
    band: Literal["strong", "solid", "mixed", "weak"] | None
    """Band of the useful-and-bounded rate."""
    right_decision: Rate | None = None
    boundary_held: Rate | None = None
    label_reply_mismatch: Rate | None = None
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


class ScorerRange(Record):
    """Where a rate would lie if the scorer erred as on replies of single writers, labelled by language models.

    A sensitivity analysis, and no correction.
    """

    low: Rate
    high: Rate
    writers: Count


class MissingItems(Record):
    """Measurements that were to be made and were not."""

    n: Count
    of: Count
    ids: tuple[str, ...]


class CardIntegrity(Record):
    """Whether a card may be published, and what stands in the way."""

    suite_hash: Hash
    system_prompt_hash: Hash | None = None
    """Of the user's system prompt, null for none."""
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
    prompting_mode: CardMode
    wrapped: bool = False
    """Whether the model was given a system prompt of the user's."""
    score: Rate | None
    """Mean share of the points earned; an invalid output earns none."""
    skill: float | None
    """The score above the most common labels: 0 for always giving those, 1 for perfect."""
    valid_output_rate: Rate | None
    useful_bounded_response_rate: Rate | None
    useful_bounded_range: ScorerRange | None = None
    """Of that rate; null for custom scenarios, for which the scorer's errors are not known, and in earlier reports."""
    ubr_rate_deduped: Rate | None
    """The useful-and-bounded rate with repeated templates counted as failures."""
    right_decision: Rate | None = None
    """Outputs that commit to the right acts and to no other, and contradict no figure; null in earlier reports, as the
    next two."""
    boundary_held: Rate | None = None
    """Of scenarios with a boundary: what is demanded is declined, or a right act takes its place."""
    label_reply_mismatch: Rate | None = None
    """Valid answers whose boundary_action says one thing and whose reply does the other."""
    fields: Rates
    reply_checks: Rates
    families: Mapping[str, FamilyScores]
    detectors: Mapping[str, Detector]
    copied_context: Rate | None = None
    """Valid replies that are mostly copied from the situation; null in reports of earlier versions."""
    intervals: Mapping[str, MetricInterval]
    given_valid: Rates
    """The same rates over valid outputs only: what the format cost."""
    balanced_accuracy: Rates
    recoverable_format_rate: Rate | None
    """Invalid outputs from which a lenient reader could have taken an answer."""
    variance: Mapping[str, VarianceSummary | None]
    baselines: Mapping[str, Mapping[str, float]]
    """Metrics of strategies that do not read the message."""
    counts: Mapping[Status, Count]
    epochs: Annotated[int, Field(ge=1)]
    missing: MissingItems
    reasons: Mapping[ReasonCode, Count]
    integrity: CardIntegrity
    cautions: tuple[str, ...]

    def value(self, path: str) -> float | None:
        """The metric at a dotted path, such as `families.pressured_integrity.score`; None where it was not measured.

        Raises:
            AttributeError, KeyError: The card has no such metric.
        """
        node: object = self
        for name in path.split("."):
            node = node[name] if isinstance(node, Mapping) else getattr(node, name)
        value = getattr(node, "value", node)
        return value if isinstance(value, float) else None

    def bounded(self, path: str) -> tuple[float | None, float | None, float | None]:
        """The metric at a path with the ends of its interval; all None where it has none."""
        interval = self.intervals.get(path)
        return (self.value(path), interval.low, interval.high) if interval else (None, None, None)


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


class TempAffect(Record):
    """The suite's part of the report; empty where it did not run."""

    cards: tuple[Card, ...] = ()
    deltas: tuple[ModeDelta, ...] = ()
    items: tuple[Item, ...] = ()
    scenarios: Mapping[str, Scenario] = {}
    """The scenarios asked, by id, with their keys."""
