"""Proportions of independent units: intervals, a paired test, power, correction for an imperfect judge."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, fsum, hypot, lgamma, log, log1p, sqrt
from statistics import NormalDist

from pytest_spiral.stats.clusters import Clusters, Tally

__all__ = [
    "Interval",
    "binomial_tail",
    "clopper_pearson",
    "corrected_rate",
    "hits_needed",
    "independent_difference",
    "least_passing_rate",
    "mcnemar",
    "wilson",
]

_NORMAL = NormalDist()
# Below this sum of sensitivity and specificity a judge carries almost no information.
_LEAST_INFORMATION = 1.2


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval and the name of its method."""

    low: float
    high: float
    method: str


def wilson(tally: Tally, confidence: float = 0.95) -> Interval:
    """Two-sided score interval of a rate, in 0..1: the p with |k/n - p| <= z sqrt(p (1 - p) / n); n = 0 gives [0, 1].

    Source: Wilson 1927, JASA 22:209.

    >>> found = wilson(Tally(60, 75, "scenario"))
    >>> round(found.low, 3), round(found.high, 3)
    (0.696, 0.875)
    """
    k, n = tally.hits, tally.n
    if n == 0:
        return Interval(0.0, 1.0, "wilson")
    z = _NORMAL.inv_cdf(0.5 + confidence / 2)
    p = k / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if k == 0 else max(0.0, centre - half)
    high = 1.0 if k == n else min(1.0, centre + half)
    return Interval(low, high, "wilson")


def clopper_pearson(tally: Tally, confidence: float = 0.95) -> Interval:
    """Two-sided exact interval of a rate, in 0..1; each end is a one-sided bound at (1 + confidence) / 2.

    low solves P(X >= k | p) = alpha / 2, high solves P(X <= k | p) = alpha / 2. n = 0 gives [0, 1].
    Source: Clopper and Pearson 1934, Biometrika 26:404.

    >>> round(clopper_pearson(Tally(53, 75, "scenario"), 0.90).low, 3)
    0.608
    """
    return Interval(*_exact(tally.hits, tally.n, confidence), "Clopper-Pearson")


@lru_cache(maxsize=4096)
def _exact(k: int, n: int, confidence: float) -> tuple[float, float]:
    if n == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else sum(root(lambda p: binomial_tail(k, n, p) - tail)) / 2
    high = 1.0 if k == n else sum(root(lambda p: tail - (1 - binomial_tail(k + 1, n, p)))) / 2
    return low, high


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(X >= k) for X binomial with n trials of probability p."""
    if k <= 0:
        return 1.0
    if k > n or p <= 0:
        return 0.0
    if p >= 1:
        return 1.0
    log_p, log_q, scale = log(p), log1p(-p), lgamma(n + 1)

    def mass(i: int) -> float:
        return exp(scale - lgamma(i + 1) - lgamma(n - i + 1) + i * log_p + (n - i) * log_q)

    # The smaller tail is summed: cancellation would cost the larger one its digits.
    if k > n * p:
        return min(1.0, fsum(mass(i) for i in range(k, n + 1)))
    return max(0.0, 1 - fsum(mass(i) for i in range(k)))


def root(
    increasing: Callable[[float], float], low: float = 0.0, high: float = 1.0, steps: int = 60
) -> tuple[float, float]:
    """Two values with a root between them, by bisection."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return low, high


def hits_needed(n: int, threshold: float, confidence: float = 0.90) -> int | None:
    """Least k of n independent units whose Clopper-Pearson lower bound, at (1 + confidence) / 2, reaches a threshold.

    None where not even n of n does.

    >>> [hits_needed(75, threshold) for threshold in (0.60, 0.70, 0.75, 0.80)]
    [53, 60, 63, 67]
    """
    needed = bisect_left(range(n + 1), threshold, key=lambda k: _exact(k, n, confidence)[0])
    return needed if needed <= n else None


@lru_cache(maxsize=256)
def least_passing_rate(n: int, threshold: float, power: float = 0.8) -> float | None:
    """The least true rate at which a gate `rate >= threshold` on n units passes with this power; None if no rate does.

    Exact: the rate at which P(X >= hits_needed) = power for binomial X, in 0..1.
    """
    needed = hits_needed(n, threshold)
    if needed is None:
        return None
    return root(lambda rate: binomial_tail(needed, n, rate) - power, threshold, 1.0, 50)[1]


def mcnemar(pairs: Clusters[tuple[bool, bool]]) -> float:
    """Two-sided p of equal rates on the same units: b of b + c discordant pairs against a fair coin, exactly.

    Six to none is the least that gives p < .05. Source: McNemar 1947, Psychometrika 12:153.

    >>> mcnemar(Clusters("scenario", tuple("abcdef"), ((True, False),) * 6))
    0.03125
    """
    b = sum(first and not second for first, second in pairs.values)
    c = sum(second and not first for first, second in pairs.values)
    n = b + c
    tail = sum(comb(n, i) for i in range(min(b, c) + 1))
    return min(1.0, 2 * tail / (1 << n))


def independent_difference(first: tuple[float, Interval], second: tuple[float, Interval]) -> Interval:
    """Interval of a difference of means of independent samples, first minus second, from the interval of each.

    With means p, q and their intervals [l, u], [m, v]: p - q - sqrt((p - l)^2 + (v - q)^2) to
    p - q + sqrt((u - p)^2 + (q - m)^2), at the confidence of both.

    Source: Newcombe 1998, Statistics in Medicine 17:873, method 10, for Wilson intervals; Zou and Donner 2008,
    Statistics in Medicine 27:1693, for any others.

    >>> first, second = Tally(56, 70, "scenario"), Tally(48, 80, "scenario")
    >>> found = independent_difference((56 / 70, wilson(first)), (48 / 80, wilson(second)))
    >>> round(found.low, 4), round(found.high, 4)
    (0.0524, 0.3339)
    """
    (p, of_p), (q, of_q) = first, second
    # A bias-corrected bootstrap interval need not contain its own estimate.
    below = hypot(max(0.0, p - of_p.low), max(0.0, of_q.high - q))
    above = hypot(max(0.0, of_p.high - p), max(0.0, q - of_q.low))
    newcombe = of_p.method == of_q.method == "wilson"
    method = "Newcombe hybrid score" if newcombe else f"square and add ({of_p.method}, {of_q.method})"
    return Interval(p - q - below, p - q + above, method)


def corrected_rate(
    rate: float, n: float, sensitivity: Tally, specificity: Tally, confidence: float = 0.95
) -> tuple[float, Interval] | None:
    """The true rate behind the reports of an imperfect judge, with its interval, both in 0..1.

    theta = (p + q0 - 1) / (q0 + q1 - 1) for p of n units that the judge reports, q1 of m1 units with the property that
    it reported, and q0 of m0 without it that it did not. None below q0 + q1 = 1.2. The interval has theta, v1 and v0 =
    q (1 - q) / m from z^2 / 2 more units of either kind, and from one more of either among m1 and among m0: theta +
    2 z^2 (theta v1 - (1 - theta) v0) -+ z sqrt(p (1 - p) / n + theta^2 v1 + (1 - theta)^2 v0) / (q0 + q1 - 1).
    Source: Rogan and Gladen 1978, Am. J. Epidemiology 107:71; Lang and Reiczigel 2014, Prev. Vet. Med. 113:13.

    Raises:
        ValueError: For no units.
    """
    if not (n and sensitivity.n and specificity.n):
        raise ValueError("a rate of no units cannot be corrected")
    q1, q0 = (tally.hits / tally.n for tally in (sensitivity, specificity))
    if q0 + q1 < _LEAST_INFORMATION:
        return None
    theta = _true_rate(rate, q1, q0)
    z = _NORMAL.inv_cdf(0.5 + confidence / 2)
    p, more = (n * rate + z * z / 2) / (n + z * z), n + z * z
    q1, q0 = ((tally.hits + 1) / (tally.n + 2) for tally in (sensitivity, specificity))
    v1, v0 = q1 * (1 - q1) / (sensitivity.n + 2), q0 * (1 - q0) / (specificity.n + 2)
    near = _true_rate(p, q1, q0)
    middle = near + 2 * z * z * (near * v1 - (1 - near) * v0)
    half = z * sqrt(p * (1 - p) / more + near**2 * v1 + (1 - near) ** 2 * v0) / (q0 + q1 - 1)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return theta, Interval(min(low, theta), max(high, theta), "Lang-Reiczigel")


def _true_rate(rate: float, sensitivity: float, specificity: float) -> float:
    return min(max((rate + specificity - 1) / (sensitivity + specificity - 1), 0.0), 1.0)
