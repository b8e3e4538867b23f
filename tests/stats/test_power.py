"""Standard errors, components of variance and what more measurements buy."""

from __future__ import annotations

import random
from math import sqrt

import pytest

from pytest_spiral.stats import (
    Clusters,
    clustered_se,
    design_effect,
    minimum_detectable_difference,
    purchases,
    standard_error,
    variance_components,
)
from pytest_spiral.stats.summary import variance_json


def units(values):
    return Clusters("prompt", tuple(map(str, range(len(values)))), tuple(values))


def simulated(n, k, j=1, *, between=0.0, rerun=0.0, judge=0.0, seed=1, lean=()):
    """Units of k repetitions of j judges with the given standard deviations."""
    rng = random.Random(seed)
    found = []
    for _ in range(n):
        level = rng.gauss(0, between)
        rows = []
        for _ in range(k):
            run = level + rng.gauss(0, rerun)
            rows.append([run + rng.gauss(0, judge) + (lean[i] if lean else 0) for i in range(j)])
        found.append(rows)
    return units(found)


def test_the_standard_error_is_the_textbooks():
    """scipy's standard error of the mean; none for a single unit."""
    from scipy.stats import sem

    values = [0.2, 0.5, 0.9, 0.4]

    assert standard_error(units(values)) == pytest.approx(sem(values))
    assert standard_error(units([1.0])) is None


def test_units_of_one_value_make_no_difference():
    """Clustered and plain standard error agree, and the design effect is 1."""
    values = [0.2, 0.5, 0.9, 0.4, 0.1]
    single = units([[value] for value in values])

    assert clustered_se(single) == pytest.approx(standard_error(units(values)))
    assert design_effect(single) == pytest.approx(1.0)


def test_repeating_values_inside_a_unit_is_worth_nothing():
    """Ten copies of each value: the standard error stays, the design effect is ten (but for the degrees of freedom)."""
    rng = random.Random(4)
    values = [rng.random() for _ in range(40)]

    copies = units([[value] * 10 for value in values])

    assert clustered_se(copies) == pytest.approx(clustered_se(units([[value] for value in values])))
    assert design_effect(copies) == pytest.approx(10, rel=0.05)


def test_the_design_effect_is_kishs():
    """1 + (m - 1) ICC: twenty turns with an ICC of .4 are worth 2.3 independent ones."""
    turns = simulated(2000, 20, between=sqrt(0.4), rerun=sqrt(0.6)).map(lambda unit: [row[0] for row in unit])

    assert design_effect(turns) == pytest.approx(1 + 19 * 0.4, rel=0.1)


def test_components_are_those_of_the_analysis_of_variance():
    """Two repetitions of three units by hand: mean squares 4.5 between (of means) and 0.5 within."""
    found = variance_components(units([[[1.0], [2.0]], [[4.0], [5.0]], [[4.0], [5.0]]]))

    means = [1.5, 4.5, 4.5]
    assert found.rerun == pytest.approx(0.5)
    assert found.between == pytest.approx(sum((m - 3.5) ** 2 for m in means) / 2 - 0.25)
    assert found.se() == pytest.approx(standard_error(units(means)))


def test_components_are_recovered():
    """Between 1, rerun .6, judge .4 come back, and a leaning judge shows as spread, not as noise."""
    data = simulated(3000, 3, 2, between=1.0, rerun=0.6, judge=0.4, lean=(0.0, 2.0))

    found = variance_components(data)

    assert found.between == pytest.approx(1.0, rel=0.1)
    assert found.rerun == pytest.approx(0.36, rel=0.1)
    assert found.judge == pytest.approx(0.16, rel=0.1)
    assert found.judge_spread == pytest.approx(2 / sqrt(2), rel=0.05)


def test_one_repetition_cannot_tell_noise_from_units():
    """Without repetitions there is one component, and the same standard error."""
    data = simulated(50, 1, between=1.0, rerun=1.0)

    found = variance_components(data)

    assert (found.rerun, found.judge, found.rerun_se) == (None, None, None)
    assert found.se() == pytest.approx(standard_error(data.map(lambda unit: unit[0][0])))
    assert variance_components(units([[[1.0]]])) is None


@pytest.mark.parametrize(
    ("between", "rerun", "first"), [(1.0, 0.2, "twice the prompts"), (0.0, 1.0, "twice the prompts")]
)
def test_what_to_spend_on(between, rerun, first):
    """More units are never worse than more repetitions; each purchase does what the formula says."""
    found = variance_components(simulated(60, 4, between=between, rerun=rerun))
    options = purchases(found, "prompt", "--convos-per-prompt")

    assert options[0].what == first
    assert options[0].se == pytest.approx(found.se() / sqrt(2))
    assert all(option.share <= 1 for option in options)


def test_the_summary_says_which_question_it_answers():
    """Other prompts, or the same again: two standard errors, and a detectable difference for the second."""
    found = variance_json(simulated(30, 5, between=1.0, rerun=0.5), "--epochs")

    assert found["rerun_se"] < found["se"]
    assert found["rerun_mde"] == pytest.approx(minimum_detectable_difference(found["rerun_se"] * sqrt(2)))
    assert 0 < found["icc"] < 1
    assert "twice the prompts would bring the standard error from" in found["advice"]
    assert variance_json(simulated(1, 5, between=1.0), "--epochs") is None
    assert "cannot be told" in variance_json(simulated(5, 1, between=1.0), "--epochs")["advice"]
    assert "no variation" in variance_json(simulated(5, 1), "--epochs")["advice"]


def test_the_detectable_difference_is_found_four_times_in_five():
    """A z test on a difference of that size has a power of .80."""
    from scipy.stats import norm

    mde = minimum_detectable_difference(2.5)

    assert norm.sf(norm.ppf(0.975) - mde / 2.5) == pytest.approx(0.80, abs=1e-6)
