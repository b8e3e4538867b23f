"""Agreement against published worked examples and identities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.stats import (
    Clusters,
    agreement_interval,
    coincidences,
    gwet_ac1,
    krippendorff_alpha,
    rating_shares,
    weighted_kappa,
)

T = TypeVar("T")
Level = Literal["nominal", "ordinal"]
_: None = None
# Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section C and D: four observers, twelve units.
PUBLISHED = [
    (1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3),
    (_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _),
]


def conversations(*groups: Sequence[T]) -> Clusters[Sequence[T]]:
    return Clusters("conversation", tuple(map(str, range(len(groups)))), groups)


def alpha_of(
    *groups: Sequence[Sequence[float | None]], level: Literal["nominal", "ordinal"] = "nominal"
) -> float | None:
    return krippendorff_alpha(coincidences(conversations(*groups)), level)


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815)])
def test_alpha_of_the_published_example(level: Level, alpha: float) -> None:
    """The worked example of the coefficient's author, whatever the units are grouped into."""
    columns = list(zip(*PUBLISHED, strict=True))

    assert alpha_of(columns, level=level) == pytest.approx(alpha, abs=5e-4)
    assert alpha_of(columns[:5], columns[5:], level=level) == pytest.approx(alpha, abs=5e-4)


def test_alpha_of_the_published_binary_example() -> None:
    """Ten binary units of two observers, section A of the same paper: .095."""
    meg = (0, 1, 0, 0, 0, 0, 0, 0, 1, 0)
    owen = (1, 1, 1, 0, 0, 1, 0, 0, 0, 0)

    assert alpha_of(list(zip(meg, owen, strict=True))) == pytest.approx(0.095, abs=5e-4)


def test_ac1_of_the_published_example() -> None:
    """The same data in Gwet's own software: .77544, whatever the units are grouped into."""
    columns = list(zip(*PUBLISHED, strict=True))

    for groups in ((columns,), (columns[:5], columns[5:])):
        assert gwet_ac1(rating_shares(conversations(*groups)), 5) == pytest.approx(0.77544, abs=5e-6)


@pytest.mark.parametrize(
    ("yes", "only_first", "only_second", "no", "ac1"), [(118, 5, 2, 0, 0.9408), (40, 10, 0, 0, 0.7561), (0, 0, 0, 9, 1)]
)
def test_ac1_of_two_raters(yes: int, only_first: int, only_second: int, no: int, ac1: float) -> None:
    """(p_a - 2 q (1 - q)) / (1 - 2 q (1 - q)) with q the mean share of yes: Gwet's first table, and one value alone."""
    rows = [(1, 1)] * yes + [(1, 0)] * only_first + [(0, 1)] * only_second + [(0, 0)] * no

    assert gwet_ac1(rating_shares(conversations(rows)), 2) == pytest.approx(ac1, abs=5e-5)


def test_ac1_needs_a_pair() -> None:
    """Subjects with one rating have no agreement."""
    assert gwet_ac1(rating_shares(conversations([(1, None), (None, 0)])), 2) is None


def test_alpha_without_variation_is_undefined() -> None:
    """Where only one value occurs, or nothing is rated twice, there is no agreement to speak of."""
    assert alpha_of([(1, 1), (1, 1)]) is None
    assert alpha_of([(1, None), (None, 2)]) is None


@pytest.mark.parametrize(
    ("yes", "only_first", "only_second", "no", "kappa"),
    [(20, 5, 10, 15, 0.4), (45, 15, 25, 15, 0.1304), (25, 35, 5, 35, 0.2593)],
)
def test_kappa_of_textbook_tables(yes: int, only_first: int, only_second: int, no: int, kappa: float) -> None:
    """Two raters, two categories."""
    pairs = [(1, 1)] * yes + [(1, 0)] * only_first + [(0, 1)] * only_second + [(0, 0)] * no

    assert weighted_kappa(conversations(pairs), "none") == pytest.approx(kappa, abs=5e-5)
    # With two categories weights make no difference.
    assert weighted_kappa(conversations(pairs)) == pytest.approx(kappa, abs=5e-5)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40))
def test_quadratic_kappa_is_the_concordance_correlation(pairs: list[tuple[int, int]]) -> None:
    """2 s_xy / (s_x^2 + s_y^2 + (m_x - m_y)^2): the identity of Fleiss and Cohen (1973)."""
    x, y = numpy.array(pairs, dtype=float).T
    bottom = x.var() + y.var() + (x.mean() - y.mean()) ** 2
    result = weighted_kappa(conversations(pairs))

    if bottom < 1e-12:
        assert result is None
    else:
        assert result == pytest.approx(2 * ((x - x.mean()) * (y - y.mean())).mean() / bottom)


def test_intervals_resample_conversations() -> None:
    """Twenty copies of every rating inside its conversation do not make the interval narrower."""
    one = conversations(*[[pair] for pair in [(1, 1), (0, 0), (1, 0), (0, 0), (1, 1), (0, 1), (1, 1), (0, 0)] * 3])
    copied = one.map(lambda group: [*group] * 20)

    single = agreement_interval(one, weighted_kappa, "seed")
    many = agreement_interval(copied, weighted_kappa, "seed")

    kappa = weighted_kappa(one)
    assert single is not None
    assert many is not None
    assert kappa is not None
    assert single.low < kappa < single.high
    assert many.low == pytest.approx(single.low)
    assert many.high == pytest.approx(single.high)


def test_an_interval_needs_variation() -> None:
    """Where most draws are undefined there is no interval."""
    assert agreement_interval(conversations([(1, 1)], [(1, 1)]), weighted_kappa, "seed") is None
