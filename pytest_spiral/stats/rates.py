"""Shares of independent units: intervals, paired comparison, correction for an imperfect judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, fsum, hypot, lgamma, log, log1p, sqrt
from statistics import NormalDist

from pytest_spiral.stats.clusters import Clusters, Tally

__all__ = [
    "Interval",
    "McNemar",
    "binomial_tail",
    "clopper_pearson",
    "corrected_rate",
    "independent_difference",
    "mcnemar",
    "paired_difference",
    "wilson",
]

_NORMAL = NormalDist()
# Below this sum of sensitivity and specificity a judge says next to nothing.
_LEAST_INFORMATION = 1.2


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval and how it was made."""

    low: float
    high: float
    method: str


def wilson(tally: Tally, confidence: float = 0.95) -> Interval:
    """Two-sided score interval of a rate, in 0..1: the p with |k/n - p| <= z sqrt(p (1 - p) / n).

    Wilson 1927, JASA 22:209. n = 0 gives [0, 1].

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
    """Two-sided exact interval of a rate, in 0..1.

    low solves P(X >= k | p) = alpha / 2, high P(X <= k | p) = alpha / 2;
    Clopper and Pearson 1934, Biometrika 26:404. Each end alone is a one-sided bound at (1 + confidence) / 2.
    n = 0 gives [0, 1].

    >>> round(clopper_pearson(Tally(53, 75, "scenario"), 0.90).low, 3)
    0.608
    """
    return Interval(*_exact(tally.hits, tally.n, confidence), "Clopper-Pearson")


@lru_cache(maxsize=4096)
def _exact(k: int, n: int, confidence: float) -> tuple[float, float]:
    if n == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else _solve(lambda p: binomial_tail(k, n, p) - tail)
    high = 1.0 if k == n else _solve(lambda p: tail - (1 - binomial_tail(k + 1, n, p)))
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

    # Summed on the side where little is lost.
    if k > n * p:
        return min(1.0, fsum(mass(i) for i in range(k, n + 1)))
    return max(0.0, 1 - fsum(mass(i) for i in range(k)))


def _solve(rising: Callable[[float], float], low: float = 0.0, high: float = 1.0) -> float:
    """Root of an increasing function by bisection, to the last bit that matters."""
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class McNemar:
    """only_first, only_second: units where just one of the two has the property. p: two-sided."""

    only_first: int
    only_second: int
    p: float


def mcnemar(pairs: Clusters[tuple[bool, bool]]) -> McNemar:
    """Exact test of two rates on the same units: b of b + c discordant pairs against a fair coin, two-sided.

    McNemar 1947, Psychometrika 12:153. Six to none is the least that gives p < .05.

    >>> mcnemar(Clusters("scenario", tuple("abcdef"), ((True, False),) * 6)).p
    0.03125
    """
    b = sum(first and not second for first, second in pairs.values)
    c = sum(second and not first for first, second in pairs.values)
    n = b + c
    tail = sum(comb(n, i) for i in range(min(b, c) + 1)) / 2**n
    return McNemar(b, c, min(1.0, 2 * tail))


def paired_difference(pairs: Clusters[tuple[bool, bool]], confidence: float = 0.95) -> Interval:
    """Score interval of the difference of two rates on the same units, first minus second, in -1..1.

    The d with |b - c - n d| <= z sqrt(n (2 q + d (1 - d))), q the maximum-likelihood share of "second only" under d:
    q = (sqrt(B^2 - 8 n C) - B) / (4 n), B = -b - c + (2 n - b + c) d, C = -c d (1 - d).
    Tango 1998, Statistics in Medicine 17:891. As a non-inferiority bound: the first is not worse by more than m if
    low >= -m. Equal answers everywhere do not make it a point. No pairs give [-1, 1].
    """
    found = mcnemar(pairs)
    b, c, n = found.only_first, found.only_second, len(pairs)
    if n == 0:
        return Interval(-1.0, 1.0, "Tango score")
    z = _NORMAL.inv_cdf(0.5 + confidence / 2)

    def statistic(d: float) -> float:
        big_b = -b - c + (2 * n - b + c) * d
        big_c = -c * d * (1 - d)
        q = (sqrt(max(0.0, big_b * big_b - 8 * n * big_c)) - big_b) / (4 * n)
        variance = n * (2 * q + d * (1 - d))
        distance = b - c - n * d
        if variance <= 0:
            return 0.0 if distance == 0 else distance * float("inf")
        return distance / sqrt(variance)

    observed = (b - c) / n
    low = -1.0 if b - c == -n else _solve(lambda d: z - statistic(d), -1.0, observed)
    high = 1.0 if b - c == n else _solve(lambda d: -z - statistic(d), observed, 1.0)
    return Interval(low, high, "Tango score")


def independent_difference(first: tuple[float, Interval], second: tuple[float, Interval]) -> Interval:
    """Interval of the difference of two means of independent samples, first minus second, from the interval of each.

    With means p, q and their intervals [l, u], [m, v]: p - q - sqrt((p - l)^2 + (v - q)^2) to
    p - q + sqrt((u - p)^2 + (q - m)^2), at the confidence that both have. Of two Wilson intervals it is method 10 of
    Newcombe 1998, Statistics in Medicine 17:873; of any others Zou and Donner 2008, Statistics in Medicine 27:1693.

    >>> first, second = Tally(56, 70, "scenario"), Tally(48, 80, "scenario")
    >>> found = independent_difference((56 / 70, wilson(first)), (48 / 80, wilson(second)))
    >>> round(found.low, 4), round(found.high, 4)
    (0.0524, 0.3339)
    """
    (p, of_p), (q, of_q) = first, second
    # An adjusted bootstrap interval may leave its own estimate out.
    below = hypot(max(0.0, p - of_p.low), max(0.0, of_q.high - q))
    above = hypot(max(0.0, of_p.high - p), max(0.0, q - of_q.low))
    newcombe = of_p.method == of_q.method == "wilson"
    method = "Newcombe hybrid score" if newcombe else f"square and add ({of_p.method}, {of_q.method})"
    return Interval(p - q - below, p - q + above, method)


def corrected_rate(
    judged: Tally, sensitivity: Tally, specificity: Tally, confidence: float = 0.95
) -> tuple[float, Interval] | None:
    """The rate behind what an imperfect judge reports, in 0..1, with its normal interval; None below q0 + q1 = 1.2.

    theta = (p + q0 - 1) / (q0 + q1 - 1), variance = [p (1 - p) / n + (1 - theta)^2 q0 (1 - q0) / m0
    + theta^2 q1 (1 - q1) / m1] / (q0 + q1 - 1)^2. Rogan and Gladen 1978, Am. J. Epidemiology 107:71; variance with
    estimated sensitivity q1 (of m1) and specificity q0 (of m0) as in arXiv 2511.21140.
    Raises ValueError where any of the three counts nothing.
    """
    if not (judged.n and sensitivity.n and specificity.n):
        raise ValueError("a rate of nothing cannot be corrected")
    p, q1, q0 = (tally.hits / tally.n for tally in (judged, sensitivity, specificity))
    information = q0 + q1 - 1
    if q0 + q1 < _LEAST_INFORMATION:
        return None
    theta = min(max((p + q0 - 1) / information, 0.0), 1.0)
    variance = (
        p * (1 - p) / judged.n
        + (1 - theta) ** 2 * q0 * (1 - q0) / specificity.n
        + theta**2 * q1 * (1 - q1) / sensitivity.n
    ) / information**2
    half = _NORMAL.inv_cdf(0.5 + confidence / 2) * sqrt(variance)
    return theta, Interval(max(0.0, theta - half), min(1.0, theta + half), "Rogan-Gladen")
