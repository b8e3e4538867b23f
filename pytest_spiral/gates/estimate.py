"""A metric with its confidence bounds, or its paired difference to a baseline: what gates and comparisons act on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Literal

from pytest_spiral.stats import Clusters, Interval, bca, bounded_mean, pair, standard_error

__all__ = ["TWO_SIDED", "Z_ONE_SIDED", "Draws", "End", "Measured", "Sample", "measure", "measure_difference"]

End = Literal["low", "high"]
Draws = Callable[[int], Sequence[Sequence[int]]]
"""Bootstrap index lists for a number of units."""
Units = Clusters[Any]
_Statistic = Callable[[Sequence[Any]], float]
# One-sided 95 % bounds are the ends of a two-sided 90 % interval.
TWO_SIDED = 0.90
Z_ONE_SIDED = 1.6449


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements behind one metric of one card.

    Attributes:
        units: What was measured.
        statistic: From the units' values to the metric.
        scale: Ends of the scale where the statistic is the mean of the units' values; None for other statistics.
        missing: Measurements (a scenario in an epoch) that are missing, of `wanted`.
        wanted: Measurements that were planned.
        fill: The units with everything missing placed at one end of the scale; None where the metric has no such ends.
    """

    units: Units
    statistic: _Statistic
    scale: tuple[float, float] | None
    missing: int
    wanted: int
    fill: Callable[[End], Units] | None

    @property
    def binary(self) -> bool:
        """Whether every unit is a yes or a no, so that the metric is a rate of single measurements."""
        return self.scale == (0.0, 1.0) and all(value in (0.0, 1.0) for value in self.units.values)

    def value(self) -> float | None:
        """The metric; None where nothing was measured."""
        return self.statistic(self.units.values) if self.units.values else None

    def filled(self, end: End | None) -> Units | None:
        """The units, with everything missing at `end` if one is given; None where that is undefined."""
        if end is None or not self.missing:
            return self.units
        return self.fill(end) if self.fill else None


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric, or a difference of candidate and baseline, with its one-sided 95 % bounds.

    Attributes:
        se: Standard error.
        n: Independent units.
        candidate: Of a difference, the candidate's value on the common units.
        baseline: Of a difference, the baseline's value on the common units.
    """

    value: float
    low: float
    high: float
    method: str
    se: float | None = None
    n: int = 0
    candidate: float | None = None
    baseline: float | None = None


def measure(sample: Sample, end: End | None, draws: Draws) -> Measured | None:
    """A metric with its bounds; None without units. end: where missing measurements go, None leaves them out."""
    units = sample.filled(end)
    if units is None or not units.values:
        return None
    interval, se = _bounds(units, sample.statistic, sample.scale, draws)
    return Measured(sample.statistic(units.values), interval.low, interval.high, interval.method, se, len(units))


def measure_difference(candidate: Sample, baseline: Sample, end: End | None, draws: Draws) -> Measured | None:
    """The metric of the candidate minus that of the baseline, paired by unit; None without common units.

    end: where the candidate's missing measurements are placed, the baseline's at the other end; None leaves them out.
    """
    mine = candidate.filled(end)
    theirs = baseline.filled(None if end is None else "high" if end == "low" else "low")
    if mine is None or theirs is None:
        return None
    pairs = pair(mine, theirs).pairs
    if not pairs.values:
        return None
    first, second = (candidate.statistic([both[side] for both in pairs.values]) for side in (0, 1))
    if candidate.scale is None:
        value = first - second
        interval, se = _bounds(
            pairs,
            lambda both: candidate.statistic([a for a, _ in both]) - candidate.statistic([b for _, b in both]),
            None,
            draws,
        )
    else:
        differences = pairs.map(lambda both: both[0] - both[1])
        value = fsum(differences.values) / len(differences)
        width = candidate.scale[1] - candidate.scale[0]
        interval, se = _bounds(differences, candidate.statistic, (-width, width), draws)
    method = f"paired {interval.method}"
    return Measured(value, interval.low, interval.high, method, se, len(pairs), first, second)


def _bounds(
    units: Units, statistic: _Statistic, scale: tuple[float, float] | None, draws: Draws
) -> tuple[Interval, float]:
    """One-sided 95 % bounds and the standard error: of a bounded mean, or by bootstrap for any other statistic."""
    if scale is None:
        interval = bca(units, statistic, draws(len(units)), TWO_SIDED)
        return interval, (interval.high - interval.low) / (2 * Z_ONE_SIDED)
    return bounded_mean(units, scale, TWO_SIDED), standard_error(units) or 0.0
