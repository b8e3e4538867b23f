"""What models as second raters say of TempAffect replies, and how far raters agree. No score depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pytest_spiral.report.model.base import EncodableText, Record
from pytest_spiral.tables import Count
from pytest_spiral.tempaffect.records import CardMode, RatedAnswer

BY_MODELS: Literal["models' answers, not people's"] = "models' answers, not people's"


class Coefficient(Record):
    """Agreement with its two-sided 95 % interval, null where raters differ too seldom to tell."""

    value: float
    low: float | None
    high: float | None


class QuestionAgreement(Record):
    """Agreement on one question: on yes or no, or on whether a behaviour is there. Intervals resample clusters."""

    labelled: Count
    """Items that anybody answered."""
    shared: Count
    """Items that at least two raters answered."""
    differing: Count
    """Of those, items on which they differ; for behaviours also in the strength."""
    positive: Mapping[str, Count]
    """Items by rater that have a yes, or the behaviour."""
    kappa: Coefficient | None
    """Cohen's; null unless there are two raters and both answers occur."""
    alpha: Coefficient | None
    """Krippendorff's, nominal; null where only one answer occurs."""
    ac1: Coefficient | None
    """Gwet's, which is also defined where one answer is rare or does not occur."""
    alpha_strength: Coefficient | None
    """Krippendorff's, ordinal, of strengths from 0 to 3; null for yes and no."""


class ReplyJudge(Record):
    """One judge model."""

    judge: EncodableText
    replies: Count
    """Valid replies of the run."""
    measured: Count
    failed: Count
    """Replies on which the judge failed: no answer that can be read."""
    not_run: Count
    cannot_tell: Mapping[str, Count]
    """By question, answers "cannot tell", with those whose evidence is not in the reply."""
    unlocated: Count
    """Answers whose evidence is not in the reply."""
    repairs: Mapping[str, Count]
    """Judgements that could be read after something was overlooked, by what that was."""
    with_scorer: Mapping[str, QuestionAgreement]


class Disagreement(Record):
    """A question to which the scorer and judges give a yes and a no."""

    model: EncodableText
    prompting_mode: CardMode
    id: EncodableText
    epoch: Count
    question: str
    scorer: Literal["yes", "no"] | None
    """Null without a decision key."""
    scorer_evidence: tuple[EncodableText, ...]
    judges: Mapping[str, RatedAnswer]


class ReplyJudges(Record):
    """Models' answers about the replies, beside what the scorer says. Not people's, and no part of any score."""

    whose: Literal["models' answers, not people's"] = BY_MODELS
    judges: tuple[ReplyJudge, ...]
    among: Mapping[str, QuestionAgreement]
    """Agreement of several judges among each other by question; empty for one."""
    disagreements: tuple[Disagreement, ...]
    """The replies with the most of them first: those that people should label first."""

    @property
    def disputed(self) -> int:
        """Replies with a disagreement."""
        return len({(one.model, one.prompting_mode, one.id, one.epoch) for one in self.disagreements})
