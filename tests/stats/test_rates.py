"""Rates: intervals and tests against scipy, tabulated figures and brute force."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from pytest_spiral.stats import (
    Clusters,
    Interval,
    Tally,
    binomial_tail,
    clopper_pearson,
    corrected_rate,
    hits_needed,
    independent_difference,
    least_passing_rate,
    mcnemar,
    wilson,
)

COUNTS = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def tally(hits: int, n: int) -> Tally:
    return Tally(hits, n, "scenario")


def pairs(both: int, first: int, second: int, neither: int) -> Clusters[tuple[bool, bool]]:
    answers = [(True, True)] * both + [(True, False)] * first + [(False, True)] * second + [(False, False)] * neither
    return Clusters("scenario", tuple(map(str, range(len(answers)))), tuple(answers))


@given(COUNTS, st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(count: tuple[int, int], confidence: float) -> None:
    """The score interval is scipy's, to the last digits."""
    expected = binomtest(*count).proportion_ci(confidence, method="wilson")

    result = wilson(tally(*count), confidence)

    assert result.low == pytest.approx(expected.low, abs=1e-9)
    assert result.high == pytest.approx(expected.high, abs=1e-9)


@given(COUNTS, st.sampled_from([0.8, 0.9, 0.95]))
def test_clopper_pearson_agrees_with_scipy(count: tuple[int, int], confidence: float) -> None:
    """The exact interval is scipy's."""
    expected = binomtest(*count).proportion_ci(confidence, method="exact")

    result = clopper_pearson(tally(*count), confidence)

    assert result.low == pytest.approx(expected.low, abs=1e-8)
    assert result.high == pytest.approx(expected.high, abs=1e-8)


@given(COUNTS, st.floats(0.001, 0.999))
def test_the_binomial_tail_agrees_with_scipy(count: tuple[int, int], p: float) -> None:
    """P(X >= k), far tails included."""
    k, n = count

    assert binomial_tail(k, n, p) == pytest.approx(binom.sf(k - 1, n, p), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("threshold", "hits"), [(0.60, 53), (0.70, 60), (0.75, 63), (0.80, 67)])
def test_hits_needed_of_75(threshold: float, hits: int) -> None:
    """The least number of hits of 75 whose exact one-sided bound clears a threshold, as tabulated."""
    assert hits_needed(75, threshold) == hits
    assert clopper_pearson(tally(hits, 75), 0.90).low >= threshold
    assert clopper_pearson(tally(hits - 1, 75), 0.90).low < threshold


def test_a_threshold_can_be_out_of_reach() -> None:
    """75 of 75 leave the bound at .961: no result passes a threshold of .97."""
    assert hits_needed(75, 0.96) == 75
    assert hits_needed(75, 0.97) is None
    assert least_passing_rate(75, 0.97) is None


def test_the_least_passing_rate_passes_four_times_in_five() -> None:
    """At that rate the chance of enough hits is the power; below it is less."""
    rate, needed = least_passing_rate(75, 0.75), hits_needed(75, 0.75)

    assert needed is not None
    assert binom.sf(needed - 1, 75, rate) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
def test_nothing_counted_is_everything_possible(interval: Callable[[Tally], Interval]) -> None:
    """Of no unit any rate is possible; impossible counts are refused."""
    result = interval(tally(0, 0))

    assert (result.low, result.high) == (0.0, 1.0)
    with pytest.raises(ValueError, match=r"0\.\.n"):
        tally(3, 2)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_agrees_with_scipy(first: int, second: int) -> None:
    """Discordant pairs against a fair coin."""
    expected = binomtest(first, first + second, 0.5).pvalue if first + second else 1.0

    assert mcnemar(pairs(10, first, second, 5)) == pytest.approx(expected)


def test_six_to_none_is_the_least() -> None:
    """Five to none is no evidence at .05, six to none is."""
    assert mcnemar(pairs(60, 6, 0, 9)) < 0.05 < mcnemar(pairs(60, 5, 0, 10))


def test_a_rate_is_corrected_for_the_judge() -> None:
    """Rogan and Gladen by hand: p .30, q1 .90, q0 .80 give .10 / .70; a coin gives nothing."""
    result = corrected_rate(0.3, 100, tally(45, 50), tally(40, 50))

    assert result is not None
    theta, interval = result
    assert theta == pytest.approx(0.1 / 0.7)
    z = 1.959964
    p, q1, q0 = (30 + z * z / 2) / (100 + z * z), 46 / 52, 41 / 52
    near = (p + q0 - 1) / (q1 + q0 - 1)
    v1, v0 = q1 * (1 - q1) / 52, q0 * (1 - q0) / 52
    half = z * sqrt(p * (1 - p) / (100 + z * z) + near**2 * v1 + (1 - near) ** 2 * v0) / (q1 + q0 - 1)
    assert interval.high == pytest.approx(near + 2 * z * z * (near * v1 - (1 - near) * v0) + half, abs=1e-6)
    assert corrected_rate(0.3, 100, tally(29, 50), tally(30, 50)) is None
    with pytest.raises(ValueError, match="no units"):
        corrected_rate(0, 0, tally(1, 1), tally(1, 1))


@pytest.mark.parametrize("rate", [0, 0.2833, 1])
def test_a_perfect_judge_corrects_nothing(rate: float) -> None:
    """With sensitivity and specificity 1 the rate stays, however many units it stands for, and has an interval."""
    result = corrected_rate(rate, 97.4, tally(50, 50), tally(50, 50))

    assert result is not None
    theta, interval = result
    assert theta == pytest.approx(rate)
    assert interval.high - interval.low > 0.02


@pytest.mark.parametrize(("truth", "sensitivity"), [(0.01, 1), (0.05, 1), (0.3, 1), (0.05, 0.95), (0.3, 0.95)])
def test_the_interval_of_a_corrected_rate_holds_the_truth(truth: float, sensitivity: float) -> None:
    """Of all reports of 50 units, and all labels of 15 with the property, nearly 95 % lead to one that does."""
    held = 0.0
    for reported in range(51):
        chance = binom.pmf(reported, 50, truth * sensitivity)
        for found in range(8, 16):
            result = corrected_rate(reported / 50, 50, tally(found, 15), tally(200, 200))
            assert result is not None
            held += chance * binom.pmf(found, 15, sensitivity) * (result[1].low <= truth <= result[1].high)

    assert held > 0.93


def estimate(count: tuple[int, int]) -> tuple[float, Interval]:
    return count[0] / count[1], wilson(tally(*count))


@pytest.mark.parametrize(
    ("first", "second", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 10), 0.6075, 1.0000),
    ],
)
def test_the_difference_of_independent_rates_is_newcombes(
    first: tuple[int, int], second: tuple[int, int], low: float, high: float
) -> None:
    """Examples a, b, d, e and h of Newcombe 1998, table II, method 10."""
    result = independent_difference(estimate(first), estimate(second))

    assert result.low == pytest.approx(low, abs=6e-5)
    assert result.high == pytest.approx(high, abs=6e-5)


@given(COUNTS, COUNTS)
def test_the_interval_of_a_difference_holds_it_and_turns_with_it(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    """Second minus first has the mirrored interval; both lie on the scale."""
    there = independent_difference(estimate(first), estimate(second))
    back = independent_difference(estimate(second), estimate(first))
    difference = estimate(first)[0] - estimate(second)[0]

    assert -1 - 1e-12 <= there.low <= difference <= there.high <= 1 + 1e-12
    assert back.low == pytest.approx(-there.high)
    assert back.high == pytest.approx(-there.low)
