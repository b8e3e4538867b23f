"""Noise of a mean: its size, what it can detect, where it comes from, and what would reduce it most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from statistics import NormalDist

from pydantic import ConfigDict

from pytest_spiral.stats.clusters import Clusters, ClusterUnit

__all__ = [
    "Components",
    "NextStep",
    "VarianceSummary",
    "design_effect",
    "minimum_detectable_difference",
    "standard_error",
    "variance_components",
    "variance_summary",
]

_CONFIG = ConfigDict(extra="forbid", use_attribute_docstrings=True)
Nested = Clusters[Sequence[Sequence[float]]]
"""Units holding repetitions holding one value per judge."""


def standard_error(clusters: Clusters[float]) -> float | None:
    """Standard error of the mean over independent units: sqrt(sum (x - mean)^2 / (n - 1) / n). None below two units."""
    n = len(clusters)
    if n < 2:
        return None
    mean = fsum(clusters.values) / n
    return sqrt(fsum((value - mean) ** 2 for value in clusters.values) / (n - 1) / n)


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


@dataclass(frozen=True, slots=True)
class Components:
    """Components of the variance of a mean: Var(mean) = between / n + rerun / (n k) + judge / (n k j).

    Attributes:
        n: Units.
        k: Mean number of repetitions per unit.
        j: Mean number of judges per repetition.
        between: Variance between units; includes `rerun` while that is None.
        rerun: Variance between repetitions of a unit, None for single repetitions; includes `judge` while that is None.
        judge: Variance between judges of one repetition beyond their constant bias, None for a single judge.
        judge_spread: Standard deviation of the judges' own means: a bias that averaging does not remove.

    Source: Searle, Casella, McCulloch 1992, Variance Components, 3.
    """

    n: int
    k: float
    j: float
    between: float
    rerun: float | None
    judge: float | None
    judge_spread: float | None = None

    def se(self, n: float | None = None, k: float | None = None, j: float | None = None) -> float:
        """Standard error of the mean with these numbers of units, repetitions and judges; by default the present."""
        n, k, j = n or self.n, k or self.k, j or self.j
        return sqrt((self.between + (self.rerun or 0.0) / k + (self.judge or 0.0) / (k * j)) / n)

    @property
    def rerun_se(self) -> float | None:
        """Standard error if the same units were run again; None for single repetitions."""
        if self.rerun is None:
            return None
        return sqrt((self.rerun / self.k + (self.judge or 0.0) / (self.k * self.j)) / self.n)


def variance_components(clusters: Nested) -> Components | None:
    """Estimate the components by the moments of the nested analysis of variance with unweighted means.

    Negative estimates become 0. Judges are told apart only where every repetition has the same number of them, in the
    same order. None below two units. Source: Henderson 1953, Biometrics 9:226, for balanced data.
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
    total = _pooled_variance([[fsum(unit) / len(unit) for unit in means]])
    assert total is not None
    between = max(0.0, total - (noise / k if rerun is None else rerun / k))
    return Components(len(units), k, j, between, within, judge, spread)


def _pooled_variance(groups: Sequence[Sequence[float]]) -> float | None:
    """Mean square within groups; None where no group has two values."""
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
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
    """The summary of nested values; None below two units. repeat_option: the option that repeats a unit."""
    components = variance_components(clusters)
    if components is None:
        return None
    repetitions = clusters.map(lambda unit: [fsum(judges) / len(judges) for judges in unit if judges])
    total = components.between + (components.rerun or 0.0)
    now, rerun_se = components.se(), components.rerun_se
    options = [(f"twice the {clusters.unit}s", components.se(n=2 * components.n))]
    if components.rerun is not None:
        options.append((f"twice {repeat_option}", components.se(k=2 * components.k)))
    if components.judge is not None:
        options.append(("twice the judges", components.se(j=2 * components.j)))
    steps = sorted((NextStep(what, se, se / now if now else 1.0) for what, se in options), key=lambda step: step.se)
    if now:
        advice = f"{steps[0].what} would bring the standard error from {now:.3g} to {steps[0].se:.3g}"
        if components.rerun is None:
            advice += f"; with {repeat_option} 1 the noise of a rerun cannot be separated"
            advice += f" from differences between {clusters.unit}s"
        advice += "".join(f", {step.what} to {step.se:.3g}" for step in steps[1:])
    else:
        advice = f"no variation between {clusters.unit}s: a harder suite would tell more than a larger one"
    return VarianceSummary(
        unit=clusters.unit,
        n=components.n,
        repetitions=components.k,
        judges=components.j,
        between=components.between,
        rerun=components.rerun,
        judge=components.judge,
        judge_spread=components.judge_spread,
        icc=components.between / total if components.rerun is not None and total > 0 else None,
        design_effect=design_effect(repetitions) if components.rerun is not None else None,
        se=now,
        rerun_se=rerun_se,
        rerun_mde=None if rerun_se is None else minimum_detectable_difference(rerun_se * 2**0.5),
        next=tuple(steps),
        advice=advice,
    )
