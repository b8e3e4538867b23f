"""Plans of labels: what they promise is what a sample of that size has."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.stats import Clusters, Corrected, LabelPlan, Rated, corrected_mean, plan_labels

Items = list[list[tuple[float, float]]]


def population(seed: int = 3) -> Items:
    """150 scenarios of four replies: the machine's value and the truth of each."""
    rng = random.Random(seed)
    units = []
    for _ in range(150):
        leaning = rng.betavariate(1.2, 2)
        truths = [float(rng.random() < leaning) for _ in range(4)]
        units.append([(truth if rng.random() < 0.8 else 1 - truth, truth) for truth in truths])
    return units


def labelled(units: Items, n: int, seed: int) -> Clusters[list[Rated]]:
    """A simple random sample of n labels."""
    total = sum(map(len, units))
    drawn = set(random.Random(seed).sample(range(total), n))
    numbers = iter(range(total))
    rated = [
        [Rated(judged, truth if next(numbers) in drawn else None, n / total) for judged, truth in u] for u in units
    ]
    return Clusters("scenario", tuple(map(str, range(len(units)))), tuple(rated))


def half_width(units: Items, n: int, seed: int) -> float:
    found = corrected_mean(labelled(units, n, seed))
    assert isinstance(found, Corrected)
    return (found.interval.high - found.interval.low) / 2


@pytest.mark.parametrize("wanted", [0.065, 0.075])
def test_samples_of_the_planned_size_have_the_wanted_width(wanted: float) -> None:
    """On average over pilots of 120 and over samples, within a tenth."""
    units = population()

    sizes = [plan_labels(labelled(units, 120, seed), wanted) for seed in range(30)]
    needed = round(fmean(plan.needed for plan in sizes if plan and plan.needed))

    assert all(plan and plan.needed for plan in sizes)
    assert 100 < needed < 500
    assert fmean(half_width(units, needed, seed) for seed in range(100, 120)) == pytest.approx(wanted, rel=0.1)


def test_a_gate_takes_fewer_labels_the_further_the_threshold_is() -> None:
    """And labels of either kind come on top of it."""
    pilot = labelled(population(), 120, 1)

    first = plan_labels(pilot, 0.1)
    assert first is not None
    away = (0.1, 0.14, 0.3)
    plans = [plan_labels(pilot, None, 0.9, 0.8, first.value - distance) for distance in away]

    near, far, farthest = [plan.needed if plan else None for plan in plans]
    assert near is not None
    assert far is not None
    assert farthest is not None
    # 15 labels with it, in four of five samples.
    assert near > far > farthest > 15 / first.value


def test_what_labels_alone_cannot_do_is_said() -> None:
    """Scenarios differ: with all replies labelled the interval still has a width, and a larger run is needed."""
    units = population()

    plans = [plan_labels(labelled(units, 120, seed), 0.02) for seed in range(20)]

    assert [plan.needed for plan in plans if plan] == [None] * 20
    assert fmean(plan.reach for plan in plans if plan) == pytest.approx(half_width(units, 600, 1), rel=0.1)
    assert plans[0] is not None
    assert plans[0].more_units == pytest.approx((plans[0].reach / 0.02) ** 2)


@given(
    seed=st.integers(0, 50),
    size=st.integers(20, 120),
    share=st.sampled_from([0.05, 0.2, 0.5]),
    times=st.tuples(st.floats(0.3, 3), st.floats(0.3, 3)),
)
def test_a_wider_interval_never_takes_more(seed: int, size: int, share: float, times: tuple[float, float]) -> None:
    """Neither more labels nor a larger run, also where one kind is rare and enough of it takes a larger run."""
    rng = random.Random(seed)
    units = [[(float(rng.random() < share), float(rng.random() < share)) for _ in range(3)] for _ in range(40)]
    pilot = labelled(units, size, seed)
    reached = plan_labels(pilot, 0.1)
    narrow, wide = sorted(time * (reached.reach if reached else 0.1) for time in times)

    plans = [plan_labels(pilot, distance) for distance in (narrow, wide)]

    assert taken(plans[1]) <= taken(plans[0])


def taken(plan: LabelPlan | None) -> tuple[float, float]:
    """The size of the run in times of the present one, then the labels."""
    if plan is None:
        return 0.0, 0.0
    if plan.needed is None:
        return (plan.more_units or math.inf), math.inf
    return 1.0, plan.needed


def test_no_plan_without_a_pilot() -> None:
    """Labels of one kind, or of one scenario, say nothing about more of them."""
    one = Clusters("scenario", ("a", "b"), ([Rated(1.0, 1.0), Rated(1.0, 0.0)], [Rated(0.0)]))
    same = Clusters("scenario", ("a", "b"), ([Rated(1.0, 1.0)], [Rated(0.0, 1.0)]))

    assert plan_labels(one, 0.05) is None
    assert plan_labels(same, 0.05) is None


def test_a_pilot_of_everything_needs_no_more() -> None:
    """With all items labelled, the number needed is at most all of them."""
    units = population()

    plan = plan_labels(labelled(units, 600, 1), 0.1)

    assert plan is not None
    assert plan.needed is not None
    assert plan.needed <= 600
