"""How far raters agree beyond chance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from math import fsum
from typing import Literal, NamedTuple, TypeVar

from pytest_spiral.stats.clusters import Clusters
from pytest_spiral.stats.rates import Interval
from pytest_spiral.stats.resampling import percentile_interval, percentile_resamples

__all__ = ["agreement_interval", "coincidences", "gwet_ac1", "krippendorff_alpha", "rating_shares", "weighted_kappa"]

T = TypeVar("T")
Level = Literal["nominal", "ordinal"]
Ratings = Sequence[Sequence[float | None]]
Coincidences = Mapping[tuple[float, float], float]
"""How often two ratings stand side by side, by pair with the smaller one first."""


def coincidences(clusters: Clusters[Ratings]) -> Clusters[Coincidences]:
    """The coincidences o_ck of every unit: each subject's ordered pairs of ratings, weighted 1 / (m - 1) for m ratings.

    Units hold the subjects rated in them (such as the turns of a conversation), each with one rating per rater, None
    where a rater gave none. They are counted once for all resamples.
    """

    def of_unit(subjects: Ratings) -> Coincidences:
        pairs: defaultdict[tuple[float, float], float] = defaultdict(float)
        # Few combinations of ratings occur, each many times.
        for subject, times in Counter(map(tuple, subjects)).items():
            counts = Counter(rating for rating in subject if rating is not None)
            raters = sum(counts.values())
            for a, b in combinations_with_replacement(sorted(counts), 2) if raters > 1 else ():
                pairs[a, b] += times * counts[a] * (counts[b] if a != b else counts[a] - 1) / (raters - 1)
        return pairs

    return clusters.map(of_unit)


def krippendorff_alpha(clusters: Clusters[Coincidences], level: Level = "nominal") -> float | None:
    """Agreement of any number of raters, some of whose ratings may be missing, in -1..1.

    With coincidences o_ck, totals n_c and n: alpha = 1 - (n - 1) sum o_ck d_ck / sum n_c n_k d_ck. The distance d is 1
    for nominal ratings and (sum of n_g from c to k - (n_c + n_k) / 2)^2 for ordinal ones. None where no subject has two
    ratings or only one value occurs.
    Source: Krippendorff 2011, Computing Krippendorff's Alpha-Reliability.
    """
    pairs: defaultdict[tuple[float, float], float] = defaultdict(float)
    totals: defaultdict[float, float] = defaultdict(float)
    for unit in clusters.values:
        for pair, weight in unit.items():
            pairs[pair] += weight
    for (a, b), weight in pairs.items():
        totals[a] += weight
        if a != b:
            totals[b] += weight
    values = sorted(value for value in totals if totals[value])
    if len(values) < 2:
        return None

    def distance(a: float, b: float) -> float:
        if level == "nominal":
            return 1.0
        between = fsum(totals[value] for value in values if a <= value <= b)
        return (between - (totals[a] + totals[b]) / 2) ** 2

    n = fsum(totals.values())
    distances = {(a, b): distance(a, b) for a, b in combinations(values, 2)}
    observed = fsum(pairs[pair] * distance for pair, distance in distances.items())
    expected = fsum(totals[a] * totals[b] * distance for (a, b), distance in distances.items())
    return 1 - (n - 1) * observed / expected


def weighted_kappa(
    clusters: Clusters[Sequence[tuple[int, int]]], weights: Literal["quadratic", "none"] = "quadratic"
) -> float | None:
    """Agreement of two raters on whole numbers, in -1..1: 1 - sum w_ij o_ij / sum w_ij e_ij.

    w_ij = (i - j)^2 for "quadratic", 1 off the diagonal for "none". None where chance alone gives no disagreement.
    Source: Cohen 1960, Educ. Psychol. Meas. 20:37; Cohen 1968, Psychol. Bulletin 70:213.
    """
    pairs = Counter(pair for group in clusters.values for pair in group)
    first: Counter[int] = Counter()
    second: Counter[int] = Counter()
    for (a, b), times in pairs.items():
        first[a] += times
        second[b] += times

    def weight(a: int, b: int) -> float:
        return float((a - b) ** 2 if weights == "quadratic" else a != b)

    n = sum(pairs.values())
    observed = fsum(times * weight(a, b) for (a, b), times in pairs.items())
    expected = fsum(first[a] * second[b] * weight(a, b) for a in first for b in second)
    return 1 - n * observed / expected if expected else None


class RatingShares(NamedTuple):
    """What Gwet's coefficient needs of a unit.

    Attributes:
        rated: Subjects with a rating.
        shares: Sum over them of the share of each value among a subject's ratings.
        paired: Subjects with two ratings or more.
        agreeing: Sum over those of the share of pairs of raters who agree.
    """

    rated: int
    shares: Mapping[float, float]
    paired: int
    agreeing: float


def rating_shares(clusters: Clusters[Ratings]) -> Clusters[RatingShares]:
    """The shares of every unit, whose subjects have a rating per rater, None where one gave none."""

    def of_unit(subjects: Ratings) -> RatingShares:
        counts = [Counter(rating for rating in subject if rating is not None) for subject in subjects]
        rated = [(count, count.total()) for count in counts if count]
        shares: defaultdict[float, float] = defaultdict(float)
        for count, n in rated:
            for value, times in count.items():
                shares[value] += times / n
        pairs = [sum(times * (times - 1) for times in count.values()) / (n * (n - 1)) for count, n in rated if n > 1]
        return RatingShares(len(rated), shares, len(pairs), fsum(pairs))

    return clusters.map(of_unit)


def gwet_ac1(clusters: Clusters[RatingShares], categories: int) -> float | None:
    """Agreement of any number of raters, some of whose ratings may be missing, at most 1.

    AC1 = (p_a - p_e) / (1 - p_e) with p_a the mean share of agreeing pairs and p_e = sum pi_k (1 - pi_k) /
    (categories - 1), pi_k the mean share of value k. Unlike kappa it is not small where one value
    is rare, and defined where one does not occur. None where no subject has two ratings.
    Source: Gwet 2008, British Journal of Mathematical and Statistical Psychology 61:29.

    Args:
        clusters: As from `rating_shares`.
        categories: Values that a rating can have, at least 2.
    """
    rated = sum(unit.rated for unit in clusters.values)
    paired = sum(unit.paired for unit in clusters.values)
    if not paired:
        return None
    totals: defaultdict[float, float] = defaultdict(float)
    for unit in clusters.values:
        for value, share in unit.shares.items():
            totals[value] += share
    chance = fsum(total / rated * (1 - total / rated) for total in totals.values()) / (categories - 1)
    agreed = fsum(unit.agreeing for unit in clusters.values) / paired
    return (agreed - chance) / (1 - chance)


def agreement_interval(
    clusters: Clusters[T],
    statistic: Callable[[Clusters[T]], float | None],
    seed: str,
    confidence: float = 0.95,
    resamples: int = 2_000,
) -> Interval | None:
    """Percentile bootstrap interval of an agreement coefficient, whole units resampled.

    Resamples in which the coefficient is undefined are left out; if they are more than half, the result is None.
    Source: Efron 1979, Annals of Statistics 7:1.
    """
    drawn = percentile_resamples(len(clusters), resamples, seed)
    samples = (Clusters(clusters.unit, clusters.ids, tuple(clusters.values[index] for index in one)) for one in drawn)
    draws = [value for sample in samples if (value := statistic(sample)) is not None]
    ends = percentile_interval(draws, confidence)
    if ends is None or 2 * len(draws) < resamples:
        return None
    return Interval(*ends, f"cluster bootstrap percentile, {len(draws)} draws")
