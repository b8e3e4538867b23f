"""A mean that is measured by machine on all items, corrected by what people say about a random part of them.

Power-tuned prediction-powered inference. With f the machine's value of each item, y the label of a labelled one,
w = 1 / (its probability to be drawn):

    value = L * mean(f) + sum w (y - L f) / sum w

which is right on average however bad the machine is, and the more precise the better it is. L, from 0 to 1, minimises
the variance over independent units, in which machine and people may be wrong alike.
Source: Angelopoulos, Duchi and Zrnic 2023, PPI++, arXiv 2311.01453, where the unlabelled part has its own mean, so that
its lambda is L times the unlabelled share; Hajek 1971 for the weights.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, cos, erfc, exp, floor, fsum, pi, sin, sqrt, tan
from operator import mul
from statistics import NormalDist
from typing import Literal, NamedTuple

from pytest_spiral.stats.clusters import Clusters
from pytest_spiral.stats.rates import Interval, binomial_tail, root

__all__ = ["LEAST_LABELS", "Corrected", "Rated", "TooFewLabels", "corrected_mean", "student_t"]

LEAST_LABELS = 15
"""Labels of either kind, with and without the property, below which nothing is said."""
_METHOD = "prediction-powered, score type with t over units, given enough labels"
# Points of an integral over the labels' mean, and how exactly an end is found.
_NODES, _CLOSE = 64, 1e-6
_ROOT_2 = sqrt(2)
# Standard deviations beyond which nothing is expected.
_FAR = 5.0
# With how much certainty the number of labels asked for holds enough of either kind.
_LIKELY = 0.8


@dataclass(frozen=True, slots=True)
class Rated:
    """One item: what the machine says, and what people say where they were asked.

    Attributes:
        judged: The machine's value, in 0..1.
        truth: The people's, in 0..1; None where there is none. One above half counts as a label with the property.
        inclusion: The probability with which the item was to be labelled.
        certain: Nobody needs to be asked: `judged` is true, as where there is no reply that could be good.
        unsettled: People were asked and have not agreed on an answer.
    """

    judged: float
    truth: float | None = None
    inclusion: float = 1.0
    certain: bool = False
    unsettled: bool = False


@dataclass(frozen=True, slots=True)
class Corrected:
    """A corrected mean.

    Attributes:
        raw: The machine's mean.
        value: The corrected one, in 0..1.
        interval: Of the corrected one.
        se: Its standard error.
        power: L, how far the machine is relied on.
        labels: Labelled items.
        positives: Those with the property.
        units: Independent units.
    """

    raw: float
    value: float
    interval: Interval
    se: float
    power: float
    labels: int
    positives: int
    units: int


@dataclass(frozen=True, slots=True)
class TooFewLabels:
    """Why a mean is not corrected.

    Attributes:
        code: `few_labels`, or `one_unit` where all labels are in one independent unit.
        raw: The machine's mean; None without items.
        labels: Labelled items.
        positives: Those with the property.
        items: All that could be labelled.
    """

    code: Literal["few_labels", "one_unit"]
    raw: float | None
    labels: int
    positives: int
    items: int

    @property
    def needed(self) -> int | None:
        """About how many labels are needed altogether, at the share seen; None where that is not known."""
        rarer = min(self.positives, self.labels - self.positives)
        return None if self.code == "one_unit" else needed_for_enough(rarer, self.labels)

    @property
    def detail(self) -> str:
        """The same in words."""
        if self.code == "one_unit":
            return "all labels are in one scenario or conversation: label replies of several"
        negatives = self.labels - self.positives
        text = f"{self.positives} labelled with it and {negatives} without it, and {LEAST_LABELS} of each are needed"
        if (needed := self.needed) is None:
            more = ": label more replies" if self.labels < self.items else ", and the run has no other reply to label"
            return f"{text}; labels of one kind only say nothing of how many more that takes{more}"
        more = f"{text}: label about {needed - self.labels} more replies, {needed} in all"
        return f"{more}; the run has {self.items}, so that it needs a larger run" if needed > self.items else more


def needed_for_enough(rarer: float, labels: float) -> int | None:
    """Labels that very likely hold enough of the rarer kind, at the share seen; None where none was seen."""
    if not rarer:
        return None
    share = rarer / labels
    # Twice the mean of what is needed is more than enough.
    most = range(LEAST_LABELS, 2 + int(2 * LEAST_LABELS / share))
    return most[bisect_left(most, _LIKELY, key=lambda n: binomial_tail(LEAST_LABELS, n, share))]


class UnitSums(NamedTuple):
    """Of one unit: counts and sums; `weight`, `truth` and `seen` over labelled items, weighted by 1 / inclusion."""

    items: float
    open: float
    """Items that are not certain."""
    known: float
    """Values of the certain ones."""
    judged: float
    """The machine's values of the others."""
    weight: float
    truth: float
    seen: float
    """The machine's values of the labelled items."""
    heaviest: float
    """The greatest weight of a label."""
    labels: float
    positives: float


class Fit(NamedTuple):
    """The estimate and, beside it, the labels' mean alone, with their variances and covariance over units."""

    value: float
    labelled: float
    power: float
    variance: float
    labelled_variance: float
    covariance: float
    freedom: float
    share: float
    """Of the items that are not certain."""
    truth: float
    """Mean of the labels."""


def corrected_mean(
    clusters: Clusters[Sequence[Rated]], confidence: float = 0.95, power: float | None = None
) -> Corrected | TooFewLabels:
    """The mean that people would give, with its interval.

    The interval inverts a test, as Wilson's does, so that it holds at rates near 0 and 1: theta is inside where the
    estimate is no rarer than (1 - confidence) / 2 on either side if theta is true. Under theta the variance is the one
    found, or more where theta (1 - theta) is greater than at the estimate. Student's t has 2 n / (kurtosis - 1) degrees
    of freedom, at most n - 1: few units that carry everything tell little about the variance.

    An estimate exists only where enough labels of either kind were found, and in such samples the rarer kind is more
    frequent than in truth. So the lower end is computed given that there were enough labels with the property, the
    upper one given that there were enough without it.
    Source of the degrees of freedom: Satterthwaite 1946, Biometrics Bulletin 2:110. benchmarks/corrected_coverage.py
    simulates what the interval covers.

    Args:
        clusters: All items of a run, by independent unit.
        confidence: Two-sided; each end is a one-sided bound at (1 + confidence) / 2.
        power: L, instead of the one that fits best.

    Raises:
        ValueError: For a value or a probability out of range.
    """
    return corrected_sums([sums_of(unit) for unit in clusters.values if unit], confidence, power)


def corrected_sums(
    units: Sequence[Sequence[float]], confidence: float = 0.95, power: float | None = None
) -> Corrected | TooFewLabels:
    """`corrected_mean` from the sums of each unit, in the order of `UnitSums`: for simulations."""
    sums = [UnitSums(*unit) for unit in units]
    items, opened = sum(unit.items for unit in sums), sum(unit.open for unit in sums)
    raw = fsum(unit.known + unit.judged for unit in sums) / items if items else None
    labels, positives = round(sum(unit.labels for unit in sums)), round(sum(unit.positives for unit in sums))
    negatives = labels - positives
    if raw is None or min(positives, negatives) < LEAST_LABELS:
        return TooFewLabels("few_labels", raw, labels, positives, round(opened))
    if sum(unit.labels > 0 for unit in sums) < 2:
        return TooFewLabels("one_unit", raw, labels, positives, round(opened))
    fit = fit_of(sums, power)
    value = min(max(fit.value, 0.0), 1.0)
    mirrored = fit._replace(value=1 - fit.value, labelled=1 - fit.labelled, truth=1 - fit.truth)
    low, high = _lower(fit, positives, confidence), 1 - _lower(mirrored, negatives, confidence)
    interval = Interval(min(low, value), max(high, value), _METHOD)
    return Corrected(raw, value, interval, sqrt(fit.variance), fit.power, labels, positives, len(sums))


def sums_of(unit: Sequence[Rated]) -> UnitSums:
    """The sums of a unit's items. Raises ValueError for a value or a probability out of range."""
    if any(not (0 <= i.judged <= 1 and 0 <= (i.truth or 0) <= 1 and 0 < i.inclusion <= 1) for i in unit):
        raise ValueError("values must lie in 0..1 and probabilities above 0")
    labelled = [(item.judged, item.truth, 1 / item.inclusion) for item in unit if item.truth is not None]
    return UnitSums(
        len(unit),
        sum(not item.certain for item in unit),
        fsum(item.judged for item in unit if item.certain),
        fsum(item.judged for item in unit if not item.certain),
        fsum(weight for _, _, weight in labelled),
        fsum(weight * truth for _, truth, weight in labelled),
        fsum(weight * judged for judged, _, weight in labelled),
        max((weight for _, _, weight in labelled), default=0.0),
        len(labelled),
        sum(truth > 0.5 for _, truth, _ in labelled),
    )


def fit_of(units: Sequence[UnitSums], power: float | None = None) -> Fit:
    """The estimate, and what each unit adds to its error (the linearised estimate)."""
    n, items = len(units), sum(unit.items for unit in units)
    share = sum(unit.open for unit in units) / items
    weight = fsum(unit.weight for unit in units)
    truth, seen = fsum(unit.truth for unit in units) / weight, fsum(unit.seen for unit in units) / weight
    labelled = fsum(unit.known for unit in units) / items + share * truth
    gap = fsum(unit.judged for unit in units) / items - share * seen
    own = [
        (u.known + truth * u.open - labelled * u.items) / items + share * (u.truth - truth * u.weight) / weight
        for u in units
    ]
    machine = [
        (u.judged - seen * u.open - gap * u.items) / items - share * (u.seen - seen * u.weight) / weight for u in units
    ]
    across = fsum(a * b for a, b in zip(own, machine, strict=True))
    squares = fsum(b * b for b in machine)
    if power is None:
        power = min(max(-across / squares, 0.0), 1.0) if squares > 0 else 0.0
    errors = [a + power * b for a, b in zip(own, machine, strict=True)]
    small = n / (n - 1)
    value, variance = labelled + power * gap, small * fsum(error**2 for error in errors)
    # Not less than a perfect machine on independent items would leave.
    inside = min(max(value, 0.0), 1.0)
    least = max(0.0, inside * (1 - inside) / items - variance)
    # Labels of unequal weight: one more of the heaviest could say something else.
    labels = sum(unit.labels for unit in units)
    room = (share * max(unit.heaviest for unit in units) / weight) ** 2 - (share / labels) ** 2 + least
    total, fourth = fsum(error**2 for error in errors), fsum(error**4 for error in errors)
    kurtosis = n * fourth / total**2 if total > 0 else n
    freedom = max(1.0, min(n - 1, 2 * n / max(kurtosis - 1, 1e-9)))
    return Fit(
        value,
        labelled,
        power,
        variance + room,
        small * fsum(a * a for a in own) + room,
        small * fsum(a * error for a, error in zip(own, errors, strict=True)) + room,
        freedom,
        share,
        truth,
    )


def _lower(fit: Fit, found: int, confidence: float) -> float:
    """The lower end. found: labels with the property, of which `LEAST_LABELS` had to be there."""
    start = min(max(fit.value, 1e-4), 1 - 1e-4)
    tail = (1 - confidence) / 2
    wider = quantile_of(fit, confidence) / NormalDist().inv_cdf((1 + confidence) / 2)
    # Half a label less than enough: counts are whole numbers.
    enough = fit.labelled - fit.share * fit.truth * (found - LEAST_LABELS + 0.5) / found
    slope = fit.covariance / fit.labelled_variance
    rest = max(fit.variance - slope * fit.covariance, 0.03 * fit.variance)

    def excess(theta: float) -> float:
        """Probability of an estimate as high as the one found, if theta is true and enough labels were found."""
        scale = wider * max(1.0, sqrt(theta * (1 - theta) / (start * (1 - start))))
        spread, own = scale * sqrt(fit.labelled_variance), scale * sqrt(rest)
        first = (enough - theta) / spread
        if first < -_FAR:
            return erfc((fit.value - theta) / (scale * sqrt(fit.variance)) / _ROOT_2) / 2
        step = (max(_FAR, first + 2) - first) / _NODES
        points = [first + place * step for place in range(_NODES + 1)]
        masses = [exp((first * first - z * z) / 2) for z in points]
        masses[0] /= 2
        start_of, slope_of = (fit.value - theta) / (own * _ROOT_2), slope * spread / (own * _ROOT_2)
        above = [erfc(start_of - slope_of * z) for z in points]
        return fsum(map(mul, masses, above)) / (2 * fsum(masses))

    return _root(lambda theta: excess(theta) - tail, start)


def quantile_of(fit: Fit, confidence: float) -> float:
    """Student's t of an estimate, between those of whole degrees of freedom."""
    fewer, more = (student_t((1 + confidence) / 2, ends(fit.freedom)) for ends in (floor, ceil))
    return fewer + (more - fewer) * (fit.freedom - floor(fit.freedom))


def _root(rising: Callable[[float], float], end: float) -> float:
    """Where a function that is positive at `end` turns positive, 0 at least: false position, Illinois variant."""
    low, high = 0.0, end
    below, above = rising(low), rising(high)
    if below >= 0:
        return 0.0
    side = 0
    while high - low > _CLOSE:
        # Not nearer to an end than the precision: the other end must move as well.
        middle = (low * above - high * below) / (above - below)
        middle = min(max(middle, low + _CLOSE / 2), high - _CLOSE / 2)
        value = rising(middle)
        if value < 0:
            low, below, above, side = middle, value, above / 2 if side < 0 else above, -1
        else:
            high, above, below, side = middle, value, below / 2 if side > 0 else below, 1
    return low


@lru_cache(maxsize=512)
def student_t(probability: float, freedom: int) -> float:
    """Quantile above one half of Student's t for whole degrees of freedom. Source: Abramowitz and Stegun 26.7.3, 4."""

    def excess(angle: float) -> float:
        term, total = (1.0, 1.0) if freedom % 2 == 0 else (cos(angle), cos(angle) if freedom > 1 else 0.0)
        for step in range(2 + freedom % 2, freedom - 1, 2):
            term *= cos(angle) ** 2 * (step - 1) / step
            total += term
        inside = sin(angle) * total if freedom % 2 == 0 else 2 / pi * (angle + sin(angle) * total)
        return (1 + inside) / 2 - probability

    return tan(sum(root(excess, 0.0, pi / 2)) / 2) * sqrt(freedom)
