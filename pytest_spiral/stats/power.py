"""Standard errors and power: what a sample of a given size can detect."""

from __future__ import annotations

from functools import lru_cache
from math import fsum, sqrt
from statistics import NormalDist

from pytest_spiral.stats.clusters import Clusters, Tally
from pytest_spiral.stats.rates import binomial_tail, clopper_pearson

__all__ = ["hits_needed", "least_passing_rate", "minimum_detectable_difference", "standard_error"]

_NORMAL = NormalDist()


def standard_error(clusters: Clusters[float]) -> float | None:
    """Standard error of the mean over independent units: sqrt(sum (x - mean)^2 / (n - 1) / n). None below two units."""
    n = len(clusters)
    if n < 2:
        return None
    mean = fsum(clusters.values) / n
    return sqrt(fsum((value - mean) ** 2 for value in clusters.values) / (n - 1) / n)


def minimum_detectable_difference(se: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference that a two-sided test of size alpha detects with this power: (z_{1-alpha/2} + z_power) SE.

    Source:
        Cohen 1988, Statistical Power Analysis, 2.

    >>> round(minimum_detectable_difference(1.0), 3)
    2.802
    """
    return (_NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(power)) * se


def hits_needed(n: int, floor: float, confidence: float = 0.90) -> int | None:
    """Least k of n whose Clopper-Pearson lower bound reaches a floor; None where not even n of n does.

    Args:
        n: Independent units.
        floor: Rate in 0..1.
        confidence: Of the two-sided interval whose lower end is the bound, in 0..1.

    >>> [hits_needed(75, floor) for floor in (0.60, 0.70, 0.75, 0.80)]
    [53, 60, 63, 67]
    """
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        # n + 1 stands for "out of reach".
        if middle > n or clopper_pearson(Tally(middle, n, "scenario"), confidence).low >= floor:
            high = middle
        else:
            low = middle + 1
    return low if low <= n else None


@lru_cache(maxsize=256)
def least_passing_rate(n: int, floor: float, power: float = 0.8) -> float | None:
    """The least true rate at which a gate `rate >= floor` on n units passes with this power; None if no rate does.

    Exact: the rate at which P(X >= hits_needed) = power for binomial X, in 0..1.
    """
    needed = hits_needed(n, floor)
    if needed is None:
        return None
    low, high = floor, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(needed, n, middle) < power else (low, middle)
    return high
