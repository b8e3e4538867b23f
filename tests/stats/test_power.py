"""Standard errors, components of variance and which further measurements help most."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import sqrt
from typing import TypeVar

import pytest
from scipy.stats import norm, sem

from pytest_spiral.stats import (
    Clusters,
    design_effect,
    minimum_detectable_difference,
    standard_error,
    variance_summary,
)

T = TypeVar("T")


def units(values: Sequence[T]) -> Clusters[T]:
    return Clusters("prompt", tuple(map(str, range(len(values)))), tuple(values))


def simulated(
    n: int, k: int, between: float, rerun: float, judge: float = 0.0, bias: Sequence[float] = (0.0,)
) -> Clusters[list[list[float]]]:
    """n units of k repetitions of one judge per bias, with the given standard deviations."""
    rng = random.Random(1)
    result = []
    for _ in range(n):
        level = rng.gauss(0, between)
        rows = []
        for _ in range(k):
            run = level + rng.gauss(0, rerun)
            rows.append([run + rng.gauss(0, judge) + constant for constant in bias])
        result.append(rows)
    return units(result)


def test_the_standard_error_is_the_textbooks() -> None:
    """scipy's standard error of the mean; none for a single unit."""
    values = [0.2, 0.5, 0.9, 0.4]

    assert standard_error(units(values)) == pytest.approx(sem(values))
    assert standard_error(units([1.0])) is None


def test_repeating_values_inside_a_unit_is_worth_nothing() -> None:
    """Single values have a design effect of 1, ten copies of each of ten (but for the degrees of freedom)."""
    rng = random.Random(4)
    values = [rng.random() for _ in range(40)]

    assert design_effect(units([[value] for value in values])) == pytest.approx(1.0)
    assert design_effect(units([[value] * 10 for value in values])) == pytest.approx(10, rel=0.05)
    assert design_effect(units([[0.5, 0.5], [0.5]])) is None


def test_the_design_effect_is_kishs() -> None:
    """1 + (m - 1) ICC: twenty turns with an ICC of .4 are worth 2.3 independent ones."""
    turns = simulated(2000, 20, between=sqrt(0.4), rerun=sqrt(0.6)).map(lambda unit: [row[0] for row in unit])

    assert design_effect(turns) == pytest.approx(1 + 19 * 0.4, rel=0.1)


def test_components_are_those_of_the_analysis_of_variance() -> None:
    """Two repetitions of three units by hand: mean squares 4.5 between (of means) and 0.5 within."""
    result = variance_summary(units([[[1.0], [2.0]], [[4.0], [5.0]], [[4.0], [5.0]]]), "--epochs")

    means = [1.5, 4.5, 4.5]
    assert result is not None
    assert result.rerun == pytest.approx(0.5)
    assert result.between == pytest.approx(sum((m - 3.5) ** 2 for m in means) / 2 - 0.25)
    assert result.se == pytest.approx(standard_error(units(means)))


def test_components_are_recovered() -> None:
    """Between 1, rerun .6, judge .4 come back, and a biased judge shows as spread, not as noise."""
    result = variance_summary(simulated(3000, 3, between=1.0, rerun=0.6, judge=0.4, bias=(0.0, 2.0)), "--epochs")

    assert result is not None
    assert result.between == pytest.approx(1.0, rel=0.1)
    assert result.rerun == pytest.approx(0.36, rel=0.1)
    assert result.judge == pytest.approx(0.16, rel=0.1)
    assert result.judge_spread == pytest.approx(2 / sqrt(2), rel=0.05)


def test_one_repetition_cannot_tell_noise_from_units() -> None:
    """Without repetitions there is one component, and the same standard error."""
    data = simulated(50, 1, between=1.0, rerun=1.0)

    result = variance_summary(data, "--epochs")

    assert result is not None
    assert (result.rerun, result.judge, result.rerun_se) == (None, None, None)
    assert result.se == pytest.approx(standard_error(data.map(lambda unit: unit[0][0])))


def test_the_summary_ranks_what_to_do_next() -> None:
    """More units never help less than more repetitions; the standard errors of other and of the same units differ."""
    result = variance_summary(simulated(30, 5, between=1.0, rerun=0.5), "--epochs")

    assert result is not None
    assert result.rerun_se is not None
    assert result.icc is not None
    assert [step.what for step in result.next] == ["twice the prompts", "twice --epochs"]
    assert result.next[0].se == pytest.approx(result.se / sqrt(2))
    assert result.rerun_se < result.se
    assert result.rerun_mde == pytest.approx(minimum_detectable_difference(result.rerun_se * sqrt(2)))
    assert 0 < result.icc < 1
    assert result.advice.startswith("twice the prompts would reduce the standard error from")


@pytest.mark.parametrize(
    ("n", "between", "advice"),
    [(1, 1.0, None), (5, 1.0, "with --epochs 1 the noise of a rerun cannot be separated"), (5, 0.0, "no variation")],
)
def test_the_summary_admits_what_it_cannot_know(n: int, between: float, advice: str | None) -> None:
    """One unit has no summary; one repetition hides the noise; equal units ask for harder ones."""
    result = variance_summary(simulated(n, 1, between=between, rerun=0.0), "--epochs")

    assert (result is None) if advice is None else (result is not None and advice in result.advice)


def test_the_detectable_difference_is_found_four_times_in_five() -> None:
    """A z test on a difference of that size has a power of .80."""
    mde = minimum_detectable_difference(2.5)

    assert norm.sf(norm.ppf(0.975) - mde / 2.5) == pytest.approx(0.80, abs=1e-6)
