"""How far the raters of a label file agree. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from pytest_spiral.labelling.files import LabelFile
from pytest_spiral.report.model.reply_judges import Coefficient, QuestionAgreement
from pytest_spiral.settings import SuiteName
from pytest_spiral.stats import (
    Clusters,
    agreement_interval,
    coincidences,
    gwet_ac1,
    krippendorff_alpha,
    rating_shares,
    weighted_kappa,
)

T = TypeVar("T")
# Enough for two digits; a rubric has twenty questions.
_DRAWS = 500


def agreement_of(labels: LabelFile) -> dict[str, QuestionAgreement]:
    """Agreement by question, over the labelled items as they are: a sample with more of the hard ones than the run."""
    header = labels.header
    raters = [rater.name for rater in header.raters]
    return {
        question: rater_agreement(
            question, header.suite, raters, [(row.cluster, row.given(question)) for row in labels.items]
        )
        for question in header.questions
    }


def rater_agreement(
    question: str, suite: SuiteName, raters: Sequence[str], given: Sequence[tuple[str, Mapping[str, int]]]
) -> QuestionAgreement:
    """Agreement on one question. given: of each item its cluster, and the numbers that raters answered."""
    rows = [(cluster, tuple(answers.get(name) for name in raters)) for cluster, answers in given if answers]
    strengths = Clusters.group("scenario" if suite == "tempaffect" else "conversation", rows)
    present = strengths.map(
        lambda items: tuple(tuple(None if r is None else float(r > 0) for r in item) for item in items)
    )
    two = len(raters) == 2
    pairs = present.map(
        lambda items: [(int(a), int(b)) for a, b in items if a is not None and b is not None] if two else []
    )
    estimate = partial(_estimate, seed=question)
    ordinal = partial(krippendorff_alpha, level="ordinal")
    shared = [set(answers.values()) for _, answers in given if len(answers) > 1]
    return QuestionAgreement(
        labelled=len(rows),
        shared=len(shared),
        differing=sum(len(values) > 1 for values in shared),
        positive={name: sum(bool(answers.get(name)) for _, answers in given) for name in raters},
        kappa=estimate(pairs, partial(weighted_kappa, weights="none")),
        alpha=estimate(coincidences(present), krippendorff_alpha),
        ac1=estimate(rating_shares(present), partial(gwet_ac1, categories=2)),
        alpha_strength=estimate(coincidences(strengths), ordinal) if suite == "spiral" else None,
    )


def _estimate(clusters: Clusters[T], statistic: Callable[[Clusters[T]], float | None], seed: str) -> Coefficient | None:
    value = statistic(clusters)
    if value is None:
        return None
    interval = agreement_interval(clusters, statistic, seed, resamples=_DRAWS)
    # Resampling items on which nobody differs sees no chance at all.
    if interval is None or interval.low == interval.high:
        return Coefficient(value=value, low=None, high=None)
    return Coefficient(value=value, low=min(interval.low, value), high=max(interval.high, value))
