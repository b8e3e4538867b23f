"""Means corrected by labels: against another implementation, scipy, laws and a small simulation."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal, norm, t

from benchmarks.corrected_coverage import BAR, SHAPES, Cell, simulate
from pytest_spiral.stats import Clusters, Corrected, Rated, TooFewLabels, corrected_mean, student_t

Units = Sequence[Sequence[Rated]]


def corrected(units: Units, confidence: float = 0.95, power: float | None = None) -> Corrected | TooFewLabels:
    ids = tuple(map(str, range(len(units))))
    return corrected_mean(Clusters("scenario", ids, tuple(map(tuple, units))), confidence, power)


def estimated(units: Units, confidence: float = 0.95, power: float | None = None) -> Corrected:
    found = corrected(units, confidence, power)
    assert isinstance(found, Corrected)
    return found


# Made with ppi_py 0.2.3, the authors' package: `ppi_mean_pointestimate` and the standard error behind `ppi_mean_ci` for
# the labels and predictions of `singles`, by lambda. Both parts have the same share of predictions in the first table.
SAME_SHARE = {
    0.0: (0.35833333, 0.04377314),
    0.3: (0.35833333, 0.03627793),
    0.75: (0.35833333, 0.03549420),
    1.0: (0.35833333, 0.04081774),
}
OTHER_SHARE = {0.0: 0.35833333, 0.3: 0.38833333, 0.75: 0.43333333, 1.0: 0.45833333}


def singles(others: Sequence[bool]) -> list[list[Rated]]:
    """120 labelled items, each a unit, and others without labels."""
    share = 120 / (120 + len(others))
    labelled = [
        [Rated(float(i * 7 % 10 < 4), float(i * 7 % 10 < 3 or i % 17 == 0), inclusion=share)] for i in range(120)
    ]
    return [*labelled, *([Rated(float(judged), inclusion=share)] for judged in others)]


def test_independent_items_give_what_the_authors_package_gives() -> None:
    """Estimates, and standard errors where both parts are alike, are those of ppi_py; it has no small-sample factor."""
    same = singles([i * 7 % 10 < 4 for i in range(120)] * 4)
    other = singles([i * 3 % 10 < 5 for i in range(480)])

    for power, (value, se) in SAME_SHARE.items():
        found = estimated(same, power=power * 600 / 480)
        assert found.value == pytest.approx(value, abs=1e-6)
        assert found.se * sqrt(599 / 600) == pytest.approx(se, abs=1e-6)
    for power, value in OTHER_SHARE.items():
        assert estimated(other, power=power * 600 / 480).value == pytest.approx(value, abs=1e-6)
    # The best lambda there is cov(y, f) / ((1 + n / N) var(f)).
    y, f = (np.array([getattr(unit[0], name) for unit in same[:120]]) for name in ("truth", "judged"))
    best = np.cov(y, f, ddof=0)[0, 1] / (1.25 * np.var(f))
    assert estimated(same).power == pytest.approx(best * 600 / 480, abs=1e-6)


def random_units(seed: int, n: int = 40) -> list[list[Rated]]:
    """Units of unequal size with unequal probabilities to be labelled, and items that need no label."""
    rng = random.Random(seed)
    units = []
    for _ in range(n):
        leaning, unit = rng.betavariate(1, 2), []
        for _ in range(rng.randint(3, 9)):
            truth = rng.random() < leaning
            judged = rng.random() if rng.random() < 0.2 else float(truth)
            inclusion = 0.4 + 0.5 * judged
            seen = rng.random() < inclusion
            unit.append(Rated(judged, float(truth) if seen else None, inclusion))
        if rng.random() < 0.4:
            unit.append(Rated(0.0, certain=True))
        units.append(unit)
    return units


def estimate(units: Units, power: float, scale: np.ndarray) -> float:
    """The formula on whole arrays, with a multiplicity for each unit."""
    flat = [(item, times) for unit, times in zip(units, scale, strict=True) for item in unit]
    known = sum(times * item.judged for item, times in flat if item.certain)
    opened = [(item, times) for item, times in flat if not item.certain]
    labelled = [(item, times / item.inclusion) for item, times in opened if item.truth is not None]
    judged = np.average([item.judged for item, _ in opened], weights=[times for _, times in opened])
    errors = [(item.truth or 0.0) - power * item.judged for item, _ in labelled]
    open_mean = power * judged + np.average(errors, weights=[weight for _, weight in labelled])
    return float((known + sum(times for _, times in opened) * open_mean) / sum(times for _, times in flat))


def influences(units: Units, power: float) -> np.ndarray:
    """What each unit adds to the error, by numerical differentiation."""
    step, ones = 1e-5, np.ones(len(units))
    ends = [[estimate(units, power, ones + sign * step * row) for sign in (1, -1)] for row in np.eye(len(units))]
    return np.array([(up - down) / (2 * step) for up, down in ends])


@pytest.mark.parametrize("seed", range(4))
def test_weighted_units_give_the_linearised_estimate(seed: int) -> None:
    """Value, variance over units and the lambda that minimises it, against numerical derivatives and scipy's search."""
    units = random_units(seed)
    n = len(units)

    found = estimated(units)
    own, whole = influences(units, 0.0), influences(units, 1.0)
    best = minimize_scalar(lambda power: float(np.sum((own + power * (whole - own)) ** 2)), bounds=(0, 1)).x

    assert found.power == pytest.approx(best, abs=1e-4)
    assert found.value == pytest.approx(estimate(units, found.power, np.ones(n)), abs=1e-6)
    assert found.raw == pytest.approx(np.mean([item.judged for unit in units for item in unit]))
    variance = n / (n - 1) * np.sum(influences(units, found.power) ** 2)
    weights = [1 / item.inclusion for unit in units for item in unit if item.truth is not None]
    opened = [not item.certain for unit in units for item in unit]
    room = np.mean(opened) ** 2 * ((max(weights) / sum(weights)) ** 2 - 1 / len(weights) ** 2)
    assert found.se**2 == pytest.approx(variance + room, abs=1e-6)


def test_ends_invert_a_test_given_enough_labels() -> None:
    """At the lower end an estimate as high is as rare as promised, among samples with enough labels (scipy)."""
    rng = random.Random(7)
    units = [
        [Rated(float(rng.random() < 0.25), float(rng.random() < 0.22) if rng.random() < 0.5 else None, 0.5)]
        for _ in range(150)
    ]
    found = estimated(units)
    own, errors = influences(units, 0.0), influences(units, found.power)
    joint = 150 / 149 * np.array([[errors @ errors, errors @ own], [errors @ own, own @ own]])
    kurtosis = 150 * np.sum(errors**4) / np.sum(errors**2) ** 2
    wider = t.ppf(0.975, min(149, 300 / (kurtosis - 1))) / norm.ppf(0.975)
    labels = estimate(units, 0.0, np.ones(150))
    enough = labels * 14.5 / found.positives

    low = found.interval.low
    both = multivariate_normal([0, 0], joint * wider**2).cdf([low - found.value, low - enough])
    alone = norm.cdf((low - enough) / (wider * sqrt(joint[1, 1])))

    assert found.positives < 30
    assert both / alone == pytest.approx(0.025, abs=1e-3)


@given(st.integers(1, 400), st.sampled_from([0.9, 0.95, 0.975, 0.995]))
def test_student_agrees_with_scipy(freedom: int, probability: float) -> None:
    """Quantiles are scipy's."""
    assert student_t(probability, freedom) == pytest.approx(t.ppf(probability, freedom), rel=1e-9)


def labelled(positives: int, negatives: int, unlabelled: int = 0) -> list[list[Rated]]:
    inclusion = (positives + negatives) / (positives + negatives + unlabelled)
    rows = [(1.0, 1.0)] * positives + [(0.0, 0.0)] * negatives + [(0.0, None)] * unlabelled
    return [[Rated(judged, truth, inclusion)] for judged, truth in rows]


def test_refuses_below_fifteen_of_a_kind_and_never_above() -> None:
    """15 and 15 labels are enough; one less is refused, with how many labels that takes at the share seen."""
    assert isinstance(corrected(labelled(15, 15)), Corrected)
    for few in (labelled(14, 86, 400), labelled(86, 14, 400)):
        refused = corrected(few)
        assert isinstance(refused, TooFewLabels)
        assert (refused.code, refused.labels, refused.items) == ("few_labels", 100, 500)
        # Chance of 15 with at a share of .14: 80 % from 128 on (scipy's binomial).
        assert refused.needed == 128
        assert "label about 28 more replies, 128 in all" in refused.detail
    none, all_of_them = corrected(labelled(0, 60, 1)), corrected(labelled(0, 60))
    assert isinstance(none, TooFewLabels)
    assert isinstance(all_of_them, TooFewLabels)
    assert none.needed is None
    assert none.detail.endswith(": label more replies")
    # Also without any valid reply.
    assert all_of_them.detail.endswith(", and the run has no other reply to label")
    small = corrected(labelled(2, 60, 10))
    assert isinstance(small, TooFewLabels)
    assert "the run has 72, so that it needs a larger run" in small.detail


def test_refuses_one_unit_and_nothing() -> None:
    """Labels in one conversation say nothing of others; no items and no labels are refused, not an error."""
    one = [[Rated(0.0, float(i < 20)) for i in range(60)], [Rated(0.0)]]

    assert [getattr(corrected(units), "code", None) for units in (one, [], [[Rated(0.5)]])] == [
        "one_unit",
        "few_labels",
        "few_labels",
    ]


def test_all_labelled_is_the_mean_of_the_labels() -> None:
    """With every item labelled the machine has no say, and what needs no label counts as it is."""
    units = [[Rated(1.0, float(i % 3 == 0)), Rated(0.0, certain=True)] for i in range(60)]

    found = estimated(units)

    assert found.value == pytest.approx(1 / 6)
    assert (found.power, found.raw) == (0.0, 0.5)
    assert found.interval.low < 1 / 6 < found.interval.high
    assert (found.labels, found.positives, found.units) == (60, 20, 60)


def test_equal_units_leave_room() -> None:
    """Units that all have the same mean do not make the number certain."""
    found = estimated([[Rated(1.0, 1.0), Rated(0.0, 0.0)] for _ in range(30)])

    assert found.value == 0.5
    assert found.interval.low < 0.4
    assert found.interval.high > 0.6


def test_yes_and_no_are_treated_alike() -> None:
    """Turned round, the numbers are the mirrored ones."""
    units = random_units(9)
    turned = [
        [
            Rated(1 - one.judged, None if one.truth is None else 1 - one.truth, one.inclusion, one.certain)
            for one in unit
        ]
        for unit in units
    ]

    found, other = estimated(units), estimated(turned)

    assert found.value == pytest.approx(1 - other.value)
    assert found.interval.low == pytest.approx(1 - other.interval.high, abs=1e-5)
    assert found.power == pytest.approx(other.power)


def test_bad_values_are_refused() -> None:
    """A probability of 0 or a value above 1 is a fault of the caller."""
    for item in (Rated(1.5), Rated(0.5, -0.1), Rated(0.5, 1.0, 0.0)):
        with pytest.raises(ValueError, match="must lie in"):
            corrected([[item]])


@pytest.mark.parametrize(
    ("cell", "runs"),
    [(Cell(SHAPES[0], False, 0.1, 100, 0.8, 0.9), 2_000), (Cell(SHAPES[0], True, 0.1, 50, 0.6, 0.99), 300)],
    ids=["enough labels are rare", "weights differ"],
)
def test_the_interval_covers_in_a_small_simulation(cell: Cell, runs: int) -> None:
    """At least 93 % of the shown intervals hold the truth, where an interval that forgot either would not."""
    result = simulate(cell, runs)

    assert result.shown > 150
    assert result.covers >= BAR * result.shown
