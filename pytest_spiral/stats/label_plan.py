"""How many labels a corrected mean takes, from a pilot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, fsum, sqrt
from statistics import NormalDist

from pytest_spiral.stats.clusters import Clusters
from pytest_spiral.stats.corrected import Rated, fit_of, needed_for_enough, quantile_of, sums_of

__all__ = ["LabelPlan", "plan_labels"]


@dataclass(frozen=True, slots=True)
class LabelPlan:
    """What a pilot says about more labels.

    Attributes:
        value: The pilot's estimate, however few its labels are.
        labels: Its labels.
        items: All that could be labelled.
        needed: Labels altogether, drawn as the pilot's were; None where not even all items suffice.
        reach: The distance that labels of all items leave.
        more_units: How many times as many scenarios or prompts it takes where labels alone do not suffice.
    """

    value: float
    labels: int
    items: int
    needed: int | None
    reach: float
    more_units: float | None


def plan_labels(
    clusters: Clusters[Sequence[Rated]],
    distance: float | None,
    confidence: float = 0.95,
    power: float = 0.5,
    threshold: float | None = None,
) -> LabelPlan | None:
    """The labels that make the interval of a corrected mean reach no further than a distance; None without a pilot.

    Its variance has two parts. What differs from unit to unit is left with all items labelled. Drawing only n of N adds
    what it added in the pilot, times (1 / n - 1 / N) over the same of the pilot. Enough labels of either kind come on
    top. The machine's part stays what it is in the pilot.

    Args:
        clusters: All items of the run, those of the pilot labelled.
        distance: From the estimate to an end of the interval.
        confidence: Of the interval.
        power: With which probability the distance suffices.
        threshold: Instead of a distance, the value that one of the ends must leave behind.
    """
    sums = [sums_of(unit) for unit in clusters.values if unit]
    labels, positives = sum(unit.labels for unit in sums), sum(unit.positives for unit in sums)
    opened = sum(unit.open for unit in sums)
    if sum(unit.labels > 0 for unit in sums) < 2 or not 0 < positives < labels:
        return None
    fit = fit_of(sums)
    drawn = _from_drawing(clusters, fit.power, opened) * fit.share**2
    inside = min(max(fit.value, 0.0), 1.0)
    lasting = max(fit.variance - drawn, inside * (1 - inside) / sum(unit.items for unit in sums))
    errors = quantile_of(fit, confidence) + NormalDist().inv_cdf(power)
    distance = abs(inside - threshold) if threshold is not None else distance or 0.0
    wanted = (distance / errors) ** 2
    items, enough = round(opened), needed_for_enough(min(positives, labels - positives), labels)
    reach = errors * sqrt(lasting)
    # Enough labels of either kind take as large a run whatever the distance.
    times = max(lasting / wanted, (enough or 0) / items, 1.0) if wanted and enough else None
    if times is None or wanted <= lasting or (enough or 0) > items:
        return LabelPlan(inside, round(labels), items, None, reach, times)
    # Of all items labelled, drawing adds nothing, now or later.
    rate = drawn / (1 / labels - 1 / opened) if labels < opened else 0.0
    n = 1 / ((wanted - lasting) / rate + 1 / opened) if rate else 0.0
    return LabelPlan(inside, round(labels), items, min(max(ceil(n), enough or 0), items), reach, 1.0)


def _from_drawing(clusters: Clusters[Sequence[Rated]], power: float, opened: float) -> float:
    """The variance of the labels' mean that comes from which items have a label. opened: items that could have one."""
    labelled = [
        (1 / item.inclusion, item.truth - power * item.judged)
        for unit in clusters.values
        for item in unit
        if item.truth is not None
    ]
    total = fsum(weight for weight, _ in labelled)
    mean = fsum(weight * error for weight, error in labelled) / total
    # Items that were drawn and have no label make it less likely to have one.
    thinned = max(1.0, opened / total)
    return fsum(
        (weight / total) ** 2 * (1 - 1 / (weight * thinned)) * (error - mean) ** 2 for weight, error in labelled
    )
