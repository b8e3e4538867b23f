"""Intervals for rates, means and other statistics of a sample. Pure functions; randomness only from a passed seed."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, fsum, lgamma, log, log1p, sqrt
from statistics import NormalDist
from typing import TypeVar

__all__ = ["Interval", "bca", "clopper_pearson", "percentile_resamples", "wilson"]

T = TypeVar("T")
_NORMAL = NormalDist()
_DEGENERATE = "bootstrap percentile (BCa degenerate)"


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval and how it was made."""

    low: float
    high: float
    method: str


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Two-sided score interval of a binomial rate, in 0..1 (Wilson 1927, JASA 22:209).

    n = 0 gives [0, 1]. Raises ValueError unless 0 <= successes <= n.

    >>> round(wilson(60, 75).low, 3), round(wilson(60, 75).high, 3)
    (0.696, 0.875)
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie in 0..n, got {successes} of {n}")
    if n == 0:
        return Interval(0.0, 1.0, "wilson")
    z = _NORMAL.inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high, "wilson")


def percentile_resamples(n: int, resamples: int, seed: str) -> list[list[int]]:
    """Index lists of a nonparametric bootstrap over n units: `resamples` draws of n with replacement."""
    rng = random.Random(seed)
    population = range(n)
    return [rng.choices(population, k=n) for _ in range(resamples)]


def bca(
    units: Sequence[T],
    statistic: Callable[[Sequence[T]], float],
    draws: Sequence[Sequence[int]],
    confidence: float = 0.95,
) -> Interval:
    """Bias-corrected and accelerated bootstrap interval over independent units (Efron 1987, JASA 82:171).

    units: one entry per cluster (scenario, conversation), everything inside a cluster kept together.
    draws: index lists from `percentile_resamples`; sharing them between statistics pairs their resamples.
    Where the jackknife or the bootstrap distribution is degenerate, the percentile interval is given; `method` says so.
    Raises ValueError for no units.
    """
    if not units:
        raise ValueError("no units to resample")
    estimate = statistic(units)
    if all(unit == units[0] for unit in units):
        return Interval(estimate, estimate, _DEGENERATE)
    values = sorted(statistic([units[i] for i in draw]) for draw in draws)
    jackknife = [statistic([*units[:i], *units[i + 1 :]]) for i in range(len(units))]
    tail = (1 - confidence) / 2
    # Ties count half, so that a discrete statistic is not read as biased; resampled sums differ in their last bits.
    close = 1e-12
    below = bisect_left(values, estimate - close)
    share = (below + (bisect_right(values, estimate + close) - below) / 2) / len(values)
    acceleration = _acceleration(jackknife)
    if acceleration is None or not 0 < share < 1:
        return Interval(_quantile(values, tail), _quantile(values, 1 - tail), _DEGENERATE)
    bias = _NORMAL.inv_cdf(share)

    def adjusted(probability: float) -> float:
        z = bias + _NORMAL.inv_cdf(probability)
        return _NORMAL.cdf(bias + z / (1 - acceleration * z))

    return Interval(_quantile(values, adjusted(tail)), _quantile(values, adjusted(1 - tail)), "bootstrap BCa")


def _acceleration(jackknife: Sequence[float]) -> float | None:
    if len(jackknife) < 2:
        return None
    centre = sum(jackknife) / len(jackknife)
    deviations = [centre - value for value in jackknife]
    squares = fsum(d * d for d in deviations)
    if squares < 1e-24:
        return None
    return fsum(d**3 for d in deviations) / (6 * squares * sqrt(squares))


def _quantile(ordered: Sequence[float], probability: float) -> float:
    """Linear interpolation between order statistics (type 7 of Hyndman and Fan 1996)."""
    position = min(max(probability, 0.0), 1.0) * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Two-sided exact interval of a binomial rate, in 0..1 (Clopper and Pearson 1934, Biometrika 26:404).

    Each end alone is a one-sided bound at (1 + confidence) / 2. n = 0 gives [0, 1].
    Raises ValueError unless 0 <= successes <= n.

    >>> round(clopper_pearson(53, 75, 0.90).low, 3)
    0.608
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie in 0..n, got {successes} of {n}")
    if n == 0:
        return Interval(0.0, 1.0, "Clopper-Pearson")
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else _solve(lambda p: 1 - _binomial_cdf(successes - 1, n, p) - tail)
    high = 1.0 if successes == n else _solve(lambda p: tail - _binomial_cdf(successes, n, p))
    return Interval(low, high, "Clopper-Pearson")


def _binomial_cdf(k: int, n: int, p: float) -> float:
    if p <= 0 or k >= n:
        return 1.0
    if p >= 1:
        return 0.0
    log_p, log_q = log(p), log1p(-p)
    scale = lgamma(n + 1)
    return min(
        1.0,
        fsum(exp(scale - lgamma(i + 1) - lgamma(n - i + 1) + i * log_p + (n - i) * log_q) for i in range(k + 1)),
    )


def _solve(rising: Callable[[float], float]) -> float:
    """Root of an increasing function on [0, 1] by bisection, to the last bit that matters."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
