"""Bootstrap, bounds and permutation against scipy, exact results and laws."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from math import log

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import bootstrap, norm, permutation_test, t

from pytest_spiral.stats import (
    MOST_RESAMPLED,
    Clusters,
    Tally,
    agreement_interval,
    bca,
    bounded_mean,
    clopper_pearson,
    expanded,
    independent_difference,
    percentile_interval,
    percentile_resamples,
    quantile,
    rao_wu_resamples,
    sign_flip,
    wilson,
)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def units(values: Sequence[float]) -> Clusters[float]:
    return Clusters("scenario", tuple(map(str, range(len(values)))), tuple(values))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 1))
def test_quantiles_agree_with_numpy(values: list[float], probability: float) -> None:
    """Type 7, numpy's default."""
    assert quantile(sorted(values), probability) == pytest.approx(numpy.quantile(values, probability), abs=1e-6)


def test_bca_agrees_with_scipy() -> None:
    """BCa ends are scipy's at the level that a small sample needs, within the noise of 10,000 draws."""
    rng = random.Random(3)
    values = [rng.random() ** 2 for _ in range(75)]
    level = expanded(0.95, 74, (74 / 75) ** 0.5)
    expected = bootstrap(
        (numpy.array(values),), numpy.mean, n_resamples=20000, confidence_level=level, method="BCa",
        rng=numpy.random.default_rng(1),
    ).confidence_interval  # fmt: skip

    result = bca(units(values), mean, percentile_resamples(75, 10000, "seed"))

    assert result.method == "bootstrap BCa"
    assert result.low == pytest.approx(expected.low, abs=0.004)
    assert result.high == pytest.approx(expected.high, abs=0.004)


@pytest.mark.parametrize("freedom", [3, 10, 24, 74])
def test_the_expansion_is_students_t(freedom: int) -> None:
    """The expanded level is that of a normal interval as wide as Student's."""
    expected = 2 * norm.cdf(t.ppf(0.975, freedom)) - 1

    assert expanded(0.95, freedom) == pytest.approx(expected, abs=2e-3)
    assert expanded(0.95, 0) == 0.95


def test_equal_units_are_no_certainty() -> None:
    """20 equal units: on a scale the exact bound, without one the point, and the method admits either."""
    draws = percentile_resamples(20, 100, "seed")

    exact = bca(units([1.0] * 20), mean, draws, scale=(0.0, 1.0))
    point = bca(units([1.0] * 20), mean, draws)

    assert exact.low == pytest.approx(clopper_pearson(Tally(20, 20, "scenario")).low)
    assert exact.high == 1.0
    assert "equal units" in exact.method
    assert (point.low, point.high) == (1.0, 1.0)
    assert "degenerate" in point.method


IN_SCALE = st.floats(0, 1) | st.sampled_from([0.0, 0.5, 1.0])


@given(
    st.lists(IN_SCALE, min_size=1, max_size=6)
    | st.tuples(IN_SCALE, st.integers(1, 30)).map(lambda equal: [equal[0]] * equal[1]),
    st.sampled_from([0.5, 0.9, 0.95, 0.999]),
)
@example([0.0, 1.0], 0.95)
def test_every_sample_has_intervals(values: list[float], confidence: float) -> None:
    """One unit, two different ones, equal ones, any: no interval raises, all have their ends in order on the scale."""
    sample, draws = units(values), percentile_resamples(len(values), 50, "seed")
    tally = Tally(sum(value > 0.5 for value in values), len(values), "scenario")
    point = [(value, bca(units([value]), mean, [[0]], confidence, (0.0, 1.0))) for value in (min(values), max(values))]

    result = [
        bca(sample, mean, draws, confidence),
        bca(sample, mean, draws, confidence, (0.0, 1.0)),
        bounded_mean(sample, (0.0, 1.0), confidence, resamples=50),
        wilson(tally, confidence),
        clopper_pearson(tally, confidence),
    ]
    if (agreement := agreement_interval(sample, lambda drawn: mean(drawn.values), "seed", confidence, 50)) is not None:
        result.append(agreement)
    difference = independent_difference(point[0], point[1])

    assert all(-1e-9 <= interval.low <= interval.high <= 1 + 1e-9 for interval in result)
    assert -1 <= difference.low <= difference.high <= 1
    assert 0 <= sign_flip(sample, "seed", resamples=50) <= 1


def test_draws_depend_on_the_seed_only() -> None:
    """The same seed gives the same draws; another seed gives others."""
    assert percentile_resamples(10, 5, "a") == percentile_resamples(10, 5, "a")
    assert percentile_resamples(10, 5, "a") != percentile_resamples(10, 5, "b")


def test_rao_wu_makes_the_variance_of_a_mean_unbiased() -> None:
    """In strata of five the plain bootstrap is a fifth too small; the rescaled one is right."""
    values = [[1.0, 4, 2, 8, 3], [2.0, 2, 5, 1, 9], [7.0, 3, 3, 4, 1]]
    flat = [value for stratum in values for value in stratum]
    draws = [sum(flat[i] * 5 / 4 for i in draw) / 15 for draw in rao_wu_resamples([5, 5, 5], 8000, "seed")]
    centre = mean(draws)

    result = mean([(draw - centre) ** 2 for draw in draws])

    theory = sum(sum((v - mean(s)) ** 2 for v in s) / 4 / 5 for s in values) / 9
    assert result == pytest.approx(theory, rel=0.05)
    with pytest.raises(ValueError, match="two"):
        next(rao_wu_resamples([5, 1], 1, "seed"))


def test_percentiles_of_nothing() -> None:
    """No draws, no interval."""
    assert percentile_interval([], 0.95) is None
    assert percentile_interval([3.0], 0.95) == (3.0, 3.0)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_bounded_mean_of_yes_and_no_is_exact(hits: int, misses: int) -> None:
    """On zeros and ones the bound of a bounded mean is Clopper and Pearson's."""
    result = bounded_mean(units([1.0] * hits + [0.0] * misses), (0.0, 1.0), 0.90)
    exact = clopper_pearson(Tally(hits, hits + misses, "scenario"), 0.90)

    assert (result.low, result.high) == (exact.low, exact.high)


def test_the_monte_carlo_bound_meets_the_exact_one() -> None:
    """A grain away from zeros and ones the simulated bound is next to the exact one."""
    values = [1.0] * 60 + [0.0] * 14 + [0.001]

    result = bounded_mean(units(values), (0.0, 1.0), 0.90)

    exact = clopper_pearson(Tally(60, 75, "scenario"), 0.90)
    assert result.method == "Gaffke"
    assert result.low == pytest.approx(exact.low, abs=0.01)
    assert result.high == pytest.approx(exact.high, abs=0.01)


@given(st.lists(st.integers(0, 13).map(lambda points: points / 13), min_size=1, max_size=30))
def test_the_bounded_mean_encloses_its_mean_and_mirrors(values: list[float]) -> None:
    """Low <= mean <= high, inside the scale; one minus the values swaps the ends."""
    result = bounded_mean(units(values), (0.0, 1.0), 0.90, resamples=500)
    mirrored = bounded_mean(units([1 - value for value in values]), (0.0, 1.0), 0.90, resamples=500)

    assert 0 <= result.low <= mean(values) + 1e-9
    assert mean(values) - 1e-9 <= result.high <= 1
    assert result.low == pytest.approx(1 - mirrored.high, abs=1e-6)


def test_the_bounded_mean_holds_where_failures_are_rare() -> None:
    """One answer in fifty is worth nothing, the others .95: a gate at the true mean passes in at most one run of 20.

    A bootstrap passes it whenever the sample happens to hold no failure, four times as often as it may.
    """
    rng = random.Random(11)
    truth = 0.98 * 0.95
    passed = 0
    for _ in range(300):
        values = [0.0 if rng.random() < 0.02 else 0.9 + 0.1 * rng.random() for _ in range(25)]
        passed += bounded_mean(units(values), (0.0, 1.0), 0.90, resamples=500).low >= truth

    assert passed <= 0.05 * 300


def test_values_off_the_scale_are_refused() -> None:
    """A wrong scale is a programming error, not a bound."""
    with pytest.raises(ValueError, match="outside"):
        bounded_mean(units([1.5]), (0.0, 1.0))
    assert bounded_mean(units([]), (0.0, 1.0)).low == 0.0


@given(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=9))
def test_few_differences_are_permuted_in_full(values: list[float]) -> None:
    """All sign patterns, zeros included, give the same p."""
    observed = abs(sum(values))
    patterns = list(product((1, -1), repeat=len(values)))
    sums = (abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in patterns)
    expected = sum(total >= observed - 1e-12 for total in sums) / len(patterns)

    assert sign_flip(units(values), "seed") == pytest.approx(expected)


def test_many_differences_agree_with_scipy() -> None:
    """Random patterns come close to scipy's."""
    rng = random.Random(2)
    values = [rng.gauss(0.25, 1) for _ in range(40)]
    expected = permutation_test(
        (numpy.array(values),), numpy.mean, permutation_type="samples", n_resamples=20000,
        rng=numpy.random.default_rng(1),
    ).pvalue  # fmt: skip

    assert sign_flip(units(values), "seed") == pytest.approx(expected, abs=0.02)


def _entropy(values: Sequence[float]) -> float:
    shares = [count / len(values) for count in Counter(values).values()]
    return -sum(share * log(share) for share in shares)


@pytest.mark.parametrize("statistic", [mean, _entropy])
@pytest.mark.parametrize("seed", range(2))
def test_many_units_need_no_draws(statistic: Callable[[Sequence[float]], float], seed: int) -> None:
    """The ends are those of 1,000 resamples to an eighth of the width, four standard errors of so few draws."""
    rng = random.Random(seed)
    values = [round(1 - rng.random() ** 6, 1) for _ in range(MOST_RESAMPLED + 1)]

    drawn = bca(units(values[:-1]), statistic, percentile_resamples(MOST_RESAMPLED, 1_000, "seed"))
    found = bca(units(values), statistic, ())

    assert (drawn.method, found.method) == ("bootstrap BCa", "ABC")
    width = drawn.high - drawn.low
    assert found.low == pytest.approx(drawn.low, abs=width / 8)
    assert found.high == pytest.approx(drawn.high, abs=width / 8)


def test_the_interval_of_many_units_stays_on_its_scale() -> None:
    """One failure in 2,000, and a statistic that no single unit changes."""
    rare = bca(units([0.5, *[0.0] * 2_000]), mean, (), scale=(0.0, 1.0))
    flat = bca(units([0.0, 1.0] * 1_000), lambda _: 0.25, ())

    assert rare.low == 0 < rare.high < 0.01
    assert (flat.low, flat.high) == (0.25, 0.25)


def test_differences_that_cancel_are_no_difference() -> None:
    """Means over three epochs that sum to 0 but for their last bits: every sign pattern is as far from 0."""
    third = 1 / 3
    cancelling = [third, third, -(1 - third), 2 / 3, -third, -third] * 4

    assert sum(cancelling) == pytest.approx(0, abs=1e-12)
    assert sign_flip(units(cancelling), "seed") == 1.0
