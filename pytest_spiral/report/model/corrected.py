"""Numbers of a report corrected by labels of a part of its replies."""

from __future__ import annotations

from typing import Literal

from pytest_spiral.report.model.base import EncodableText, Hash, Rate, Record
from pytest_spiral.settings import SuiteName
from pytest_spiral.stats import ClusterUnit
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.records import CardMode

Whose = Literal["people", "model raters", "mixed"]


class LabelSource(Record):
    """A label file that numbers are corrected by."""

    suite: SuiteName
    file: EncodableText
    """As it was named."""
    hash: Hash
    """SHA-256 of its content."""
    whose: Whose
    """Whose labels they are; mixed ones are not people's."""
    raters: tuple[EncodableText, ...]
    adjudicator: EncodableText | None
    items: Count
    """Replies or turns in it."""
    design: EncodableText
    """How they were drawn."""


class Refusal(Record):
    """Why a number is not corrected."""

    code: Literal["few_labels", "one_unit"]
    detail: str
    needed: Count | None
    """Labels needed altogether, at the share seen; null where that is not known."""


class CorrectedFigure(Record):
    """One number of one card or score as it was measured, and corrected by labels."""

    suite: SuiteName
    model: EncodableText
    prompting_mode: CardMode | None
    """Null for Spiral-Bench."""
    metric: str
    """The question that raters answered: of TempAffect whether the answer is yes, of Spiral-Bench whether the behaviour
    is in the turn."""
    raw: Rate | None
    """The share by the scorer or the judges."""
    value: Rate | None
    """The share that the raters would give; null where it is refused."""
    low: Rate | None
    """Lower end of the 95 % interval of `value`."""
    high: Rate | None
    """Its upper end."""
    power: Rate | None
    """How far the scorer or the judges are relied on, from 0 to 1 (the lambda of the method)."""
    labels: Count
    positives: Count
    negatives: Count
    unsettled: Count
    """Drawn items without a label: the raters differ, cannot tell or did not answer."""
    items: Count
    """All replies or turns that the number is about."""
    units: Count
    """Independent units."""
    unit: ClusterUnit
    refused: Refusal | None


class Corrections(Record):
    """Numbers corrected by labels, in a section of their own; the others of the report stay as they were measured."""

    sources: tuple[LabelSource, ...]
    figures: tuple[CorrectedFigure, ...]
