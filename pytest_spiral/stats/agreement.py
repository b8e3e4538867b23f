"""How far raters agree beyond chance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from math import fsum
from typing import Literal, TypeVar

from pytest_spiral.stats.clusters import Clusters
from pytest_spiral.stats.rates import Interval
from pytest_spiral.stats.resampling import percentile_interval, percentile_resamples

__all__ = ["agreement_interval", "krippendorff_alpha", "weighted_kappa"]

T = TypeVar("T")
Level = Literal["nominal", "ordinal", "interval"]
Ratings = Sequence[Sequence[float | None]]


def krippendorff_alpha(clusters: Clusters[Ratings], level: Level = "nominal") -> float | None:
    """Agreement of any number of raters with gaps: 1 - observed / expected disagreement, from -1 to 1.

    clusters: per unit of sampling the rated things in it (turns of a conversation), each a rating per rater, None where
    one said nothing. With coincidences o_ck (each thing's ordered pairs of ratings, weighed 1 / (m - 1)), totals n_c
    and n: alpha = 1 - (n - 1) sum o_ck d_ck / sum n_c n_k d_ck; d is 0/1, the squared difference, or
    (sum of n_g from c to k - (n_c + n_k) / 2)^2. Krippendorff 2011, Computing Krippendorff's Alpha-Reliability.
    None where nothing is rated twice or only one value occurs.
    """
    return _alpha(clusters.values, level)


def _alpha(groups: Sequence[Ratings], level: Level) -> float | None:
    coincidences: defaultdict[tuple[float, float], float] = defaultdict(float)
    # Few combinations of ratings occur, each many times.
    for thing, times in Counter(tuple(thing) for things in groups for thing in things).items():
        counts = Counter(rating for rating in thing if rating is not None)
        raters = sum(counts.values())
        if raters < 2:
            continue
        for a, b in combinations_with_replacement(sorted(counts), 2):
            pairs = counts[a] * (counts[b] if a != b else counts[a] - 1) / (raters - 1)
            coincidences[a, b] += times * pairs
    totals: defaultdict[float, float] = defaultdict(float)
    for (a, b), pairs in coincidences.items():
        totals[a] += pairs
        if a != b:
            totals[b] += pairs
    values = sorted(value for value in totals if totals[value])
    n = fsum(totals.values())
    if len(values) < 2:
        return None
    off_diagonal = [(a, b) for a, b in combinations_with_replacement(values, 2) if a != b]
    distance = _distances(values, totals, level)
    observed = fsum(coincidences[pair] * distance(*pair) for pair in off_diagonal)
    expected = fsum(totals[a] * totals[b] * distance(a, b) for a, b in off_diagonal)
    return 1 - (n - 1) * observed / expected


def _distances(values: Sequence[float], totals: Mapping[float, float], level: Level) -> Callable[[float, float], float]:
    if level == "nominal":
        return lambda _a, _b: 1.0
    if level == "interval":
        return lambda a, b: (a - b) ** 2

    def ordinal(a: float, b: float) -> float:
        between = fsum(totals[value] for value in values if a <= value <= b)
        return (between - (totals[a] + totals[b]) / 2) ** 2

    return ordinal


def weighted_kappa(
    clusters: Clusters[Sequence[tuple[int, int]]], weights: Literal["quadratic", "none"] = "quadratic"
) -> float | None:
    """Agreement of two raters on whole numbers: 1 - sum w_ij o_ij / sum w_ij e_ij, from -1 to 1.

    clusters: per unit of sampling the pairs of ratings in it. w_ij = (i - j)^2, or 1 off the diagonal for "none" (Cohen
    1960, Educ. Psychol. Meas. 20:37; Cohen 1968, Psychol. Bulletin 70:213). None where no disagreement could be
    expected.
    """
    return _kappa(clusters.values, weights)


def _kappa(groups: Sequence[Sequence[tuple[int, int]]], weights: Literal["quadratic", "none"]) -> float | None:
    pairs = Counter(pair for group in groups for pair in group)
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


def agreement_interval(
    clusters: Clusters[T],
    statistic: Callable[[Clusters[T]], float | None],
    seed: str,
    confidence: float = 0.95,
    resamples: int = 2_000,
) -> Interval | None:
    """Percentile bootstrap interval over units of sampling (Efron 1979), for any agreement coefficient.

    Draws in which it is undefined (one value only) are left out; None where half of them are.
    """
    draws = []
    for draw in percentile_resamples(len(clusters), resamples, seed):
        ids = tuple(str(place) for place in range(len(draw)))
        value = statistic(Clusters(clusters.unit, ids, tuple(clusters.values[index] for index in draw)))
        if value is not None:
            draws.append(value)
    ends = percentile_interval(draws, confidence)
    if ends is None or 2 * len(draws) < resamples:
        return None
    return Interval(*ends, f"cluster bootstrap percentile, {len(draws)} draws")
