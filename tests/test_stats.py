"""Intervals against scipy and against published figures."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.stats import bca, clopper_pearson, percentile_resamples, wilson

COUNTS = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def mean(values):
    return sum(values) / len(values)


@given(COUNTS, st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_agrees_with_scipy(count, confidence):
    """The score interval is scipy's, to the last digits."""
    from scipy.stats import binomtest

    k, n = count
    expected = binomtest(k, n).proportion_ci(confidence, method="wilson")

    found = wilson(k, n, confidence)

    assert found.low == pytest.approx(expected.low, abs=1e-9)
    assert found.high == pytest.approx(expected.high, abs=1e-9)


@given(COUNTS, st.sampled_from([0.8, 0.9, 0.95]))
def test_clopper_pearson_agrees_with_scipy(count, confidence):
    """The exact interval is scipy's."""
    from scipy.stats import binomtest

    k, n = count
    expected = binomtest(k, n).proportion_ci(confidence, method="exact")

    found = clopper_pearson(k, n, confidence)

    assert found.low == pytest.approx(expected.low, abs=1e-8)
    assert found.high == pytest.approx(expected.high, abs=1e-8)


@pytest.mark.parametrize(("floor", "hits"), [(0.60, 53), (0.70, 60), (0.75, 63), (0.80, 67)])
def test_hits_needed_of_75(floor, hits):
    """The least number of hits of 75 whose exact one-sided bound clears a floor, as tabulated."""
    assert clopper_pearson(hits, 75, 0.90).low >= floor
    assert clopper_pearson(hits - 1, 75, 0.90).low < floor


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
def test_rates_refuse_impossible_counts(interval):
    """A count beyond n is a programming error, not an interval."""
    with pytest.raises(ValueError, match=r"0\.\.n"):
        interval(3, 2)
    assert (interval(0, 0).low, interval(0, 0).high) == (0.0, 1.0)


def test_bca_agrees_with_scipy():
    """BCa ends are scipy's, within the noise of 10,000 draws."""
    import numpy
    from scipy.stats import bootstrap

    rng = random.Random(3)
    values = [rng.random() ** 2 for _ in range(75)]
    expected = bootstrap(
        (numpy.array(values),), numpy.mean, n_resamples=20000, method="BCa", rng=numpy.random.default_rng(1)
    ).confidence_interval

    found = bca(values, mean, percentile_resamples(75, 10000, "seed"))

    assert found.method == "bootstrap BCa"
    assert found.low == pytest.approx(expected.low, abs=0.004)
    assert found.high == pytest.approx(expected.high, abs=0.004)


def test_bca_says_when_it_is_degenerate():
    """Equal units give the point itself, and the method admits it."""
    found = bca([1.0] * 20, mean, percentile_resamples(20, 100, "seed"))

    assert (found.low, found.high) == (1.0, 1.0)
    assert "degenerate" in found.method


def test_draws_depend_on_the_seed_only():
    """The same seed gives the same draws; another seed gives others."""
    assert percentile_resamples(10, 5, "a") == percentile_resamples(10, 5, "a")
    assert percentile_resamples(10, 5, "a") != percentile_resamples(10, 5, "b")
