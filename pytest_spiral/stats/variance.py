"""Noise of a mean: its size, what it can detect, where it comes from, and what would reduce it most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import NormalDist

from pytest_spiral.stats.clusters import Clusters, ClusterUnit

__all__ = ["VarianceSummary", "design_effect", "minimum_detectable_difference", "standard_error", "variance_summary"]

_CONFIG = {"extra": "forbid"}
Nested = Clusters[Sequence[Sequence[float]]]
"""Units holding repetitions holding one value per judge."""


def standard_error(clusters: Clusters[float]) -> float | None:
    """Standard error of the mean over independent units: sqrt(sum (x - mean)^2 / (n - 1) / n). None below two units."""
    variance = _pooled_variance([clusters.values]) if clusters.values else None
    return None if variance is None else sqrt(variance / len(clusters))


def minimum_detectable_difference(se: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """The true difference that a two-sided test of size alpha detects with this power: (z_{1-alpha/2} + z_power) SE.
    Source: Cohen 1988, Statistical Power Analysis, 2.

    >>> round(minimum_detectable_difference(1.0), 3)
    2.802
    """
    return (NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)) * se


def design_effect(clusters: Clusters[Sequence[float]]) -> float | None:
    """How many times larger the variance of the mean is than for independent values: SE_clustered^2 / (s^2 / N).

    SE_clustered^2 = C / (C - 1) sum_c (sum_i (s_i - mean))^2 / N^2 for C units and N values. For units of equal size m
    the effect is 1 + (m - 1) ICC. None where it is undefined.
    Source: Kish 1965, Survey Sampling, 8.2; Miller 2024, arXiv 2411.00640.
    """
    units = len(clusters)
    values = [value for unit in clusters.values for value in unit]
    n = len(values)
    if units < 2 or n < 2:
        return None
    mean = fsum(values) / n
    independent = fsum((value - mean) ** 2 for value in values) / (n - 1) / n
    totals = fsum(fsum(value - mean for value in unit) ** 2 for unit in clusters.values)
    return units / (units - 1) * totals / n**2 / independent if independent > 0 else None


def _pooled_variance(groups: Sequence[Sequence[float]]) -> float | None:
    """Mean square within groups; None where no group has two values."""
    if not (freedom := sum(len(group) - 1 for group in groups)):
        return None
    means = [fsum(group) / len(group) for group in groups]
    return fsum((x - mean) ** 2 for group, mean in zip(groups, means, strict=True) for x in group) / freedom


def _judge_component(repetitions: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Variance between judges of one repetition beyond their constant bias, and the spread of that bias."""
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
class NextStep:
    """One way to double the measurements."""

    __pydantic_config__ = _CONFIG

    what: str
    se: float
    """The standard error afterwards."""
    share: float
    """The same as a share of the present one."""


@dataclass(frozen=True, slots=True)
class VarianceSummary:
    """Components of the variance of a mean. What is None cannot be told apart with so few repetitions or judges."""

    __pydantic_config__ = _CONFIG

    unit: ClusterUnit
    n: int
    """Units."""
    repetitions: float
    """Mean repetitions per unit."""
    judges: float
    """Mean judges per repetition."""
    between: float
    """Variance between units."""
    rerun: float | None
    """Variance between repetitions of a unit."""
    judge: float | None
    """Variance between judges of one repetition."""
    judge_spread: float | None
    """Standard deviation between the judges' own means."""
    icc: float | None
    """Share of the variance that lies between units, 0..1."""
    design_effect: float | None
    """How many times larger the variance of the mean is than for independent values."""
    se: float
    """Standard error for other units like these."""
    rerun_se: float | None
    """Standard error for the same units run again."""
    rerun_mde: float | None
    """Minimum detectable difference of two such runs of the same units."""
    next: tuple[NextStep, ...]
    """Ways to double the measurements, the best first."""
    advice: str
    """The same in one sentence."""


def variance_summary(clusters: Nested, repeat_option: str) -> VarianceSummary | None:
    """Estimate the components by the moments of the nested analysis of variance with unweighted means.

    Var(mean) = between / n + rerun / (n k) + judge / (n k j) for n units, k repetitions of each and j judges of each
    repetition. Negative estimates become 0. Judges are told apart only where every repetition has the same number of
    them, in the same order. None below two units.
    Source: Searle, Casella, McCulloch 1992, Variance Components, 3; Henderson 1953, Biometrics 9:226.

    Args:
        clusters: One value per judge of every repetition of every unit.
        repeat_option: The option that repeats a unit.
    """
    means = clusters.map(lambda unit: [fsum(repetition) / len(repetition) for repetition in unit if repetition])
    units = [unit for unit in means.values if unit]
    n = len(units)
    if n < 2:
        return None
    repetitions = [repetition for unit in clusters.values for repetition in unit if repetition]
    k = n / fsum(1 / len(unit) for unit in units)
    j = len(repetitions) / fsum(1 / len(repetition) for repetition in repetitions)
    judge, spread = _judge_component(repetitions)
    noise = 0.0 if judge is None else judge / j
    pooled = _pooled_variance(units)
    rerun = None if pooled is None else max(0.0, pooled - noise)
    total = _pooled_variance([[fsum(unit) / len(unit) for unit in units]])
    assert total is not None
    between = max(0.0, total - (noise if pooled is None else pooled) / k)

    def se(n: float = n, k: float = k, j: float = j) -> float:
        return sqrt((between + (rerun or 0.0) / k + (judge or 0.0) / (k * j)) / n)

    options = [(f"twice the {clusters.unit}s", se(n=2 * n))]
    if rerun is not None:
        options.append((f"twice {repeat_option}", se(k=2 * k)))
    if judge is not None:
        options.append(("twice the judges", se(j=2 * j)))
    now = se()
    steps = sorted((NextStep(what, after, after / now if now else 1.0) for what, after in options), key=lambda s: s.se)
    rerun_se = None if rerun is None else sqrt((rerun / k + (judge or 0.0) / (k * j)) / n)
    return VarianceSummary(
        unit=clusters.unit,
        n=n,
        repetitions=k,
        judges=j,
        between=between,
        rerun=rerun,
        judge=judge,
        judge_spread=spread,
        icc=between / (between + rerun) if rerun is not None and between + rerun > 0 else None,
        design_effect=design_effect(means) if rerun is not None else None,
        se=now,
        rerun_se=rerun_se,
        rerun_mde=None if rerun_se is None else minimum_detectable_difference(rerun_se * 2**0.5),
        next=tuple(steps),
        advice=_advice(clusters.unit, now, steps, repeat_option if rerun is None else None),
    )


def _advice(unit: ClusterUnit, now: float, steps: Sequence[NextStep], unrepeated: str | None) -> str:
    """unrepeated: the option that repeats a unit, where no unit was repeated."""
    if not now:
        return f"no variation between {unit}s: harder ones would show more than additional ones"
    advice = f"{steps[0].what} would reduce the standard error from {now:.3g} to {steps[0].se:.3g}"
    if unrepeated is not None:
        advice += f"; with {unrepeated} 1 the noise of a rerun cannot be separated from differences between {unit}s"
    return advice + "".join(f", {step.what} to {step.se:.3g}" for step in steps[1:])
