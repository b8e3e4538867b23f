"""What a sample can tell apart, where its noise comes from, and what more of it would buy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import fsum, sqrt
from statistics import NormalDist

from pytest_spiral.stats.clusters import Clusters, Tally
from pytest_spiral.stats.rates import binomial_tail, clopper_pearson

__all__ = [
    "Components",
    "Purchase",
    "clustered_se",
    "design_effect",
    "hits_needed",
    "least_passing_rate",
    "minimum_detectable_difference",
    "purchases",
    "standard_error",
    "variance_components",
]

_NORMAL = NormalDist()


def standard_error(clusters: Clusters[float]) -> float | None:
    """Standard error of the mean over independent units: sqrt(sum (x - mean)^2 / (n - 1) / n). None below two units."""
    n = len(clusters)
    if n < 2:
        return None
    mean = fsum(clusters.values) / n
    return sqrt(fsum((value - mean) ** 2 for value in clusters.values) / (n - 1) / n)


def clustered_se(clusters: Clusters[Sequence[float]]) -> float | None:
    """Standard error of the mean over all values, for units of any size.

    SE^2 = C / (C - 1) sum_c (sum_i (s_i - mean))^2 / N^2 for C units and N values;
    Miller 2024, arXiv 2411.00640. None below two units.
    """
    count = len(clusters)
    values = [value for unit in clusters.values for value in unit]
    if count < 2 or not values:
        return None
    mean = fsum(values) / len(values)
    squares = fsum(fsum(value - mean for value in unit) ** 2 for unit in clusters.values)
    return sqrt(count / (count - 1) * squares) / len(values)


def design_effect(clusters: Clusters[Sequence[float]]) -> float | None:
    """How many times the variance of the mean is what independent values would give: SE_clustered^2 / (s^2 / N).

    Kish 1965, Survey Sampling, 8.2; 1 + (m - 1) ICC for units of equal size m. None where it is undefined.
    """
    values = [value for unit in clusters.values for value in unit]
    clustered = clustered_se(clusters)
    if clustered is None or len(values) < 2:
        return None
    mean = fsum(values) / len(values)
    plain = fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
    return clustered**2 / plain if plain > 0 else None


def minimum_detectable_difference(se: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference that a two-sided test of size alpha finds with this power: (z_{1-alpha/2} + z_power) SE.

    Cohen 1988, Statistical Power Analysis, 2.

    >>> round(minimum_detectable_difference(1.0), 3)
    2.802
    """
    return (_NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(power)) * se


def hits_needed(n: int, floor: float, confidence: float = 0.90) -> int | None:
    """Least k of n whose one-sided Clopper-Pearson bound clears a floor; None where not even n of n does.

    >>> [hits_needed(75, floor) for floor in (0.60, 0.70, 0.75, 0.80)]
    [53, 60, 63, 67]
    """
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        if clopper_pearson(Tally(middle, n, "scenario"), confidence).low >= floor:
            high = middle
        else:
            low = middle + 1
        if low > n:
            return None
    return low


@lru_cache(maxsize=256)
def least_passing_rate(n: int, floor: float, power: float = 0.8) -> float | None:
    """The least true rate which a gate `rate >= floor` on n units passes with this power, in 0..1; None if none does.

    Exact: P(X >= hits_needed) = power for X binomial.
    """
    needed = hits_needed(n, floor)
    if needed is None:
        return None
    low, high = floor, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(needed, n, middle) < power else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Components:
    """Where the variance of a mean comes from: between units, between repetitions of a unit, between judges of one.

    Var(mean) = between / n + rerun / (n K) + judge / (n K J) (Searle, Casella, McCulloch 1992, Variance Components, 3).
    n: units; k: mean repetitions per unit; j: mean judges per repetition. rerun, judge: None where there is but one.
    While `rerun` is None it is inside `between`, and `judge` inside the next one above it.
    judge_spread: standard deviation between the judges' own means, a bias that no averaging removes.
    """

    n: int
    k: float
    j: float
    between: float
    rerun: float | None
    judge: float | None
    judge_spread: float | None = None

    def se(self, n: float | None = None, k: float | None = None, j: float | None = None) -> float:
        """Standard error of the mean with so many units, repetitions and judges; by default with those there are."""
        n, k, j = n or self.n, k or self.k, j or self.j
        return sqrt((self.between + (self.rerun or 0.0) / k + (self.judge or 0.0) / (k * j)) / n)

    @property
    def rerun_se(self) -> float | None:
        """Standard error if the same units were run again: what is left once they are fixed. None for k = 1."""
        if self.rerun is None:
            return None
        return sqrt((self.rerun / self.k + (self.judge or 0.0) / (self.k * self.j)) / self.n)


def variance_components(clusters: Clusters[Sequence[Sequence[float]]]) -> Components | None:
    """Components from units holding repetitions holding one value per judge, judges in a fixed order.

    Moments of the nested analysis of variance with unweighted means (Henderson's method for balanced data); negative
    estimates become 0. None below two units. Repetitions with other judges than the first are not told apart by judge.
    """
    units = [[list(repetition) for repetition in unit if repetition] for unit in clusters.values]
    units = [unit for unit in units if unit]
    if len(units) < 2:
        return None
    repetitions = [repetition for unit in units for repetition in unit]
    k = len(units) / fsum(1 / len(unit) for unit in units)
    j = len(repetitions) / fsum(1 / len(repetition) for repetition in repetitions)
    judge, spread = _judge_component(repetitions)
    means = [[fsum(repetition) / len(repetition) for repetition in unit] for unit in units]
    noise = 0.0 if judge is None else judge / j
    rerun = _pooled_variance(means)
    within = None if rerun is None else max(0.0, rerun - noise)
    tops = [fsum(row) / len(row) for row in means]
    centre = fsum(tops) / len(tops)
    total = fsum((value - centre) ** 2 for value in tops) / (len(tops) - 1)
    between = max(0.0, total - (noise / k if rerun is None else rerun / k))
    return Components(len(units), k, j, between, within, judge, spread)


def _pooled_variance(groups: Sequence[Sequence[float]]) -> float | None:
    """Mean square within groups; None where no group has two values."""
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return None
    return fsum(fsum((x - fsum(group) / len(group)) ** 2 for x in group) for group in groups) / freedom


def _judge_component(repetitions: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Variance between judges of one repetition beyond their constant leanings, and the spread of those leanings."""
    count = len(repetitions[0])
    if count < 2 or len(repetitions) < 2 or any(len(row) != count for row in repetitions):
        return None, None
    columns = [fsum(row[place] for row in repetitions) / len(repetitions) for place in range(count)]
    centre = fsum(columns) / count
    squares = fsum(
        (value - fsum(row) / count - column + centre) ** 2
        for row in repetitions
        for value, column in zip(row, columns, strict=True)
    )
    spread = sqrt(fsum((column - centre) ** 2 for column in columns) / (count - 1))
    return squares / ((len(repetitions) - 1) * (count - 1)), spread


@dataclass(frozen=True, slots=True)
class Purchase:
    """A way to spend twice the calls. se: standard error afterwards; share: of the present one."""

    what: str
    se: float
    share: float


def purchases(components: Components, unit: str, repetition: str) -> list[Purchase]:
    """What doubling one number would do to the standard error, the best first."""
    now = components.se()
    options = [(f"twice the {unit}s", components.se(n=2 * components.n))]
    if components.rerun is not None:
        options.append((f"twice {repetition}", components.se(k=2 * components.k)))
    if components.judge is not None:
        options.append(("twice the judges", components.se(j=2 * components.j)))
    return sorted((Purchase(what, se, se / now if now else 1.0) for what, se in options), key=lambda found: found.se)
