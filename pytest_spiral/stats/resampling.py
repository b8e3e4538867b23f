"""Bootstrap, permutation and finite-sample bounds over independent units. Randomness comes from a given seed only."""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise, product
from math import fsum, inf, sqrt
from operator import mul
from statistics import NormalDist
from typing import TypeVar

from pytest_spiral.stats.clusters import Clusters, Tally
from pytest_spiral.stats.rates import Interval, clopper_pearson

__all__ = [
    "MOST_RESAMPLED",
    "adjusted_interval",
    "bca",
    "bounded_mean",
    "expanded",
    "percentile_interval",
    "percentile_resamples",
    "quantile",
    "rao_wu_resamples",
    "sign_flip",
]

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
_NORMAL = NormalDist()
_PERCENTILE = "bootstrap percentile (BCa degenerate)"
_EQUAL = "exact for equal units"
# Up to this many differences all 2^12 sign patterns are tried.
_ALL_PATTERNS = 12
# Resampled sums that should be equal differ in their last bits.
_CLOSE = 1e-12
# A bootstrap draws about this many units altogether, so that its work does not grow with the square of a large suite.
_DRAWN_UNITS = 1_000_000
MOST_RESAMPLED = 1_000
"""Units up to which `bca` resamples; of more, its ends follow from what leaving out each unit changes."""
# Up to this many units, the bounds of a mean share one list of order statistics.
_LISTED_UNITS = 500


def quantile(ordered: Sequence[float], probability: float) -> float:
    """Linear interpolation between order statistics; a probability outside 0..1 means the nearest end.

    Source: Hyndman and Fan 1996, Am. Stat. 50:361, type 7.
    """
    position = min(max(probability, 0.0), 1.0) * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def percentile_resamples(n: int, resamples: int, seed: str) -> list[memoryview[int]]:
    """Index lists of a nonparametric bootstrap: `resamples` times n of n units, with replacement.

    More than 100 units are drawn less often: 1,000,000 units altogether, but at least 1,000 times, since with fewer
    the ends of an interval are noise (Efron 1987, section 9).
    """
    rng = random.Random(seed)
    times = min(resamples, _DRAWN_UNITS // min(max(1, n), MOST_RESAMPLED))
    # One block of memory, which goes back to the system as a whole: of a large suite it takes 20 MB.
    drawn = array("H" if n <= 65_536 else "I")
    for _ in range(times):
        drawn.extend([int(rng.random() * n) for _ in range(n)])
    whole = memoryview(drawn)
    return [whole[start : start + n] for start in range(0, times * n, n or 1)]


def rao_wu_resamples(sizes: Sequence[int], resamples: int, seed: str) -> Iterator[list[int]]:
    """Index lists of a stratified bootstrap for small strata; indices run on from stratum to stratum.

    From each stratum n - 1 of its n units are drawn with replacement. The caller must weight each by n / (n - 1), which
    makes the variance of the resampled totals unbiased. Strata need at least two units.
    Source: Rao and Wu 1988, JASA 83:231.
    """
    if any(size < 2 for size in sizes):
        raise ValueError("a stratum needs at least two units")
    rng = random.Random(seed)
    starts = [0, *accumulate(sizes)]
    strata = [range(start, start + size) for start, size in zip(starts, sizes, strict=False)]
    for _ in range(resamples):
        yield [index for stratum in strata for index in rng.choices(stratum, k=len(stratum) - 1)]


def expanded(confidence: float, freedom: int, shrink: float = 1.0) -> float:
    """Level at which percentile intervals of a small sample have this two-sided confidence.

    A percentile interval is as narrow as a normal one; Student's t, by its Cornish-Fisher expansion, widens it.
    `shrink` is the standard error of the bootstrap over the textbook's: sqrt((n - 1) / n) for plain resampling, 1 for
    Rao-Wu. Below 1 degree of freedom nothing is expanded.
    Source: Hesterberg 2015, Am. Stat. 69:371; Abramowitz and Stegun 26.7.5.
    """
    if freedom < 1:
        return confidence
    z = _NORMAL.inv_cdf((1 + confidence) / 2)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return 2 * _NORMAL.cdf(t / shrink) - 1


def percentile_interval(draws: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Ends of the percentile bootstrap interval (Efron 1979); None for no draws."""
    if not draws:
        return None
    ordered = sorted(draws)
    tail = (1 - confidence) / 2
    return quantile(ordered, tail), quantile(ordered, 1 - tail)


def bca(
    clusters: Clusters[H],
    statistic: Callable[[Sequence[H]], float],
    draws: Sequence[Sequence[int]],
    confidence: float = 0.95,
    scale: tuple[float, float] | None = None,
) -> Interval:
    """Bias-corrected and accelerated bootstrap interval of a statistic, whole units resampled.

    Percentiles are taken at the `expanded` level. Where all units are equal, a mean with the ends of its `scale` gets
    the exact bound of a bounded mean; without it, or where the bootstrap distribution is degenerate, the result is the
    percentile interval. Statistics that share their `draws` (of `percentile_resamples`) are paired. More than
    `MOST_RESAMPLED` units need no draws: the ends are those to which the bootstrap's tend (`_without_resampling`).
    Source: Efron 1987, JASA 82:171.

    Raises:
        ValueError: Without units.
    """
    units = clusters.values
    n = len(units)
    if not n:
        raise ValueError("no units to resample")
    estimate = statistic(units)
    if all(unit == units[0] for unit in units):
        if scale is None:
            return Interval(estimate, estimate, _PERCENTILE)
        return _equal_units(estimate, n, scale, confidence)
    # Leaving out any of several equal units leaves the same value.
    places = {unit: place for place, unit in enumerate(units)}
    without = {unit: statistic([*units[:place], *units[place + 1 :]]) for unit, place in places.items()}
    jackknife = [without[unit] for unit in units]
    centre = sum(jackknife) / n
    level = expanded(confidence, n - 1, sqrt((n - 1) / n))
    influences = [centre - value for value in jackknife]
    if n > MOST_RESAMPLED:
        low, high = _without_resampling(estimate, centre, influences, level)
        least, most = scale or (-inf, inf)
        return Interval(max(low, least), min(high, most), "ABC")
    values = [statistic(list(map(units.__getitem__, draw))) for draw in draws]
    found = adjusted_interval(values, estimate, influences, level)
    if found is None:
        return Interval(*(percentile_interval(values, level) or (estimate, estimate)), _PERCENTILE)
    return Interval(*found, "bootstrap BCa")


def adjusted_interval(
    draws: Sequence[float], estimate: float, influences: Sequence[float], level: float
) -> tuple[float, float] | None:
    """Bias-corrected and accelerated percentiles of bootstrap draws: Phi(b + (b + z) / (1 - a (b + z))).

    b is the normal quantile of the share of draws below the estimate, ties counted half so that a discrete statistic
    does not look biased. a = sum l^3 / (6 (sum l^2)^(3/2)) of the influences l: of every unit (n - 1) times what
    leaving it out takes from its stratum's mean. None where draws or influences do not vary. A level of 1, which two
    units need, gives the extremes of the draws.
    Source: Efron 1987, JASA 82:171.
    """
    squares = fsum(value * value for value in influences)
    if len(influences) < 2 or squares < 1e-24:
        return None
    acceleration = fsum(value**3 for value in influences) / (6 * squares * sqrt(squares))
    ordered = sorted(draws)
    below = bisect_left(ordered, estimate - _CLOSE)
    rank = (below + (bisect_right(ordered, estimate + _CLOSE) - below) / 2) / len(ordered)
    if not 0 < rank < 1:
        return None
    bias = _NORMAL.inv_cdf(rank)

    def adjusted(probability: float) -> float:
        if not 0 < probability < 1:
            return quantile(ordered, probability)
        z = bias + _NORMAL.inv_cdf(probability)
        return quantile(ordered, _NORMAL.cdf(bias + z / (1 - acceleration * z)))

    return adjusted((1 - level) / 2), adjusted((1 + level) / 2)


def _without_resampling(
    estimate: float, centre: float, influences: Sequence[float], level: float
) -> tuple[float, float]:
    """What the ends of `adjusted_interval` tend to for many units and a smooth statistic.

    estimate + se * w / (1 - a w)^2 with w = b + z: a as there, se and b, which takes in the statistic's own bias, by
    the jackknife, and no curvature in the direction of the estimate.
    Source: DiCiccio and Efron 1992, Biometrika 79:231, section 4.
    """
    n = len(influences)
    squares = fsum(value * value for value in influences)
    if squares < 1e-24:
        return estimate, estimate
    acceleration = fsum(value**3 for value in influences) / (6 * squares * sqrt(squares))
    error = sqrt((n - 1) / n * squares)
    skewed, biased = _NORMAL.cdf(acceleration), _NORMAL.cdf(-(n - 1) * (centre - estimate) / error)
    bias = _NORMAL.inv_cdf(2 * skewed * biased)

    def end(probability: float) -> float:
        w = bias + _NORMAL.inv_cdf(probability)
        return estimate + error * w / (1 - acceleration * w) ** 2

    return end((1 - level) / 2), end((1 + level) / 2)


def _equal_units(value: float, n: int, scale: tuple[float, float], confidence: float) -> Interval:
    """All n units equal: P(all at least c) <= (mean / c)^n on 0..1, so the mean is at least c alpha^(1/n); mirrored."""
    low, high = scale
    root = ((1 - confidence) / 2) ** (1 / n)
    return Interval(low + (value - low) * root, high - (high - value) * root, _EQUAL)


def bounded_mean(
    clusters: Clusters[float], scale: tuple[float, float], confidence: float = 0.95, resamples: int = 5_000
) -> Interval:
    """Bounds for the mean of a bounded quantity that hold for few units of any distribution: gates act on them.

    Upper bound on 0..1: the (1 + confidence) / 2 quantile over uniform order statistics U of
    1 - sum U_(i) (z_(i+1) - z_(i)), z the ordered values and z_(n+1) = 1; the lower one mirrored. For values at the two
    ends only it is the exact bound of Clopper and Pearson, for equal values c it is c alpha^(1/n). It has no general
    proof, but no counterexample is known, while a bootstrap passes a model whose rare failures the sample happens not
    to contain. The draws depend on n alone. No units give the whole scale; a value outside it raises ValueError.
    Source: Gaffke 2005, Mathematical Methods of Statistics 14:451; Learned-Miller and Thomas 2019, arXiv 1905.06208.
    """
    low, high = scale
    slack = 1e-9 * (high - low)
    if any(not low - slack <= value <= high + slack for value in clusters.values):
        raise ValueError(f"a value lies outside {low:g}..{high:g}")
    ordered = sorted(min(max((value - low) / (high - low), 0.0), 1.0) for value in clusters.values)
    if not ordered:
        return Interval(low, high, "no units")
    if all(value in (0.0, 1.0) for value in ordered):
        exact = clopper_pearson(Tally(round(sum(ordered)), len(ordered), clusters.unit), confidence)
        return Interval(low + (high - low) * exact.low, low + (high - low) * exact.high, exact.method)
    if ordered[0] == ordered[-1]:
        return _equal_units(low + (high - low) * ordered[0], len(ordered), scale, confidence)
    upper = _gaffke(ordered, confidence, resamples)
    lower = 1 - _gaffke([1 - value for value in reversed(ordered)], confidence, resamples)
    return Interval(low + (high - low) * lower, low + (high - low) * upper, "Gaffke")


def _gaffke(ordered: Sequence[float], confidence: float, resamples: int) -> float:
    steps = [after - before for before, after in pairwise([*ordered, 1.0])]
    if len(ordered) <= _LISTED_UNITS:
        # Steps of 0 add nothing.
        tops = [1 - sum(map(mul, draw, steps)) for draw in _order_statistics(len(ordered), resamples)]
    else:
        tops = list(_drawn_tops(steps, resamples))
    return quantile(sorted(tops), (1 + confidence) / 2)


def _drawn_tops(steps: Sequence[float], resamples: int) -> Iterator[float]:
    """1 - sum of uniform order statistics times steps, drawn at the steps alone: sums of spacings follow gamma."""
    n = len(steps)
    taken = [(place, step) for place, step in enumerate(steps) if step > 0]
    rng = random.Random(f"order-statistics-{n}")
    for _ in range(resamples):
        total, top, last = 0.0, 0.0, -1
        for place, step in taken:
            total += rng.gammavariate(place - last, 1.0)
            top += total * step
            last = place
        yield 1 - top / (total + rng.gammavariate(n - last, 1.0))


@lru_cache(maxsize=8)
def _order_statistics(n: int, resamples: int) -> list[list[float]]:
    """Ordered uniform samples, as normalised partial sums of exponential spacings."""
    rng = random.Random(f"order-statistics-{n}")
    samples = []
    for _ in range(resamples):
        sums = list(accumulate(rng.expovariate(1.0) for _ in range(n + 1)))
        samples.append([value / sums[-1] for value in sums[:-1]])
    return samples


def sign_flip(differences: Clusters[float], seed: str, resamples: int = 10_000) -> float:
    """Two-sided p of a mean paired difference of 0: how many sign patterns have a mean at least as far from 0.

    All patterns up to 12 differences that are not 0; beyond that (1 + hits) / (1 + resamples), which is never 0.
    Source: Fisher 1935, The Design of Experiments, 21; Phipson and Smyth 2010, SAGMB 9:39.
    """
    values = [value for value in differences.values if value]
    observed = abs(fsum(values)) - _CLOSE * fsum(map(abs, values))
    if len(values) <= _ALL_PATTERNS:
        patterns = product((1, -1), repeat=len(values))
        sums = [abs(fsum(sign * value for sign, value in zip(signs, values, strict=True))) for signs in patterns]
        return sum(total >= observed for total in sums) / len(sums)
    rng = random.Random(seed)
    total = sum(values)
    hits = 0
    for _ in range(resamples):
        bits = rng.getrandbits(len(values))
        flipped = sum(value for place, value in enumerate(values) if bits >> place & 1)
        hits += abs(total - 2 * flipped) >= observed
    return (1 + hits) / (1 + resamples)
