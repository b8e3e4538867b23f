"""Turns cannot be taken for independent units: by type, and again at run time."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

import pytest

from pytest_spiral import stats
from pytest_spiral.stats import Clusters, ClusterUnit, Tally, pair

# What takes no sample at all: numbers out of numbers.
NUMBERS = {
    "adjusted_interval",
    "binomial_tail",
    "corrected_rate",
    "expanded",
    "hits_needed",
    "independent_difference",
    "least_passing_rate",
    "minimum_detectable_difference",
    "percentile_interval",
    "percentile_resamples",
    "quantile",
    "rao_wu_resamples",
}
FUNCTIONS = {name for name, value in vars(stats).items() if inspect.isfunction(value)}


@pytest.mark.parametrize("name", sorted(FUNCTIONS - NUMBERS))
def test_samples_come_as_clusters(name: str) -> None:
    """Every function on a sample demands `Clusters` or a `Tally` as its first argument, no list of values."""
    hints = typing.get_type_hints(getattr(stats, name))
    first = hints[next(iter(inspect.signature(getattr(stats, name)).parameters))]

    assert first is Tally or typing.get_origin(first) is Clusters


def test_a_turn_is_no_unit() -> None:
    """Neither the type nor the record knows it."""
    assert "turn" not in typing.get_args(ClusterUnit)
    for make in (lambda: Clusters("turn", ("a",), (1.0,)), lambda: Tally(58, 570, "turn")):  # type: ignore[arg-type]  # the mistake
        with pytest.raises(ValueError, match="not an independent unit; group values by"):
            make()


def test_mypy_refuses_turns(tmp_path: Path) -> None:
    """A list of turns, a tally of turns and clusters of turns do not type-check; conversations do."""
    from mypy import api

    path = tmp_path / "sample.py"
    path.write_text(
        "from pytest_spiral.stats import Clusters, Tally, standard_error, wilson\n"
        "turns = [0.0, 1.0, 1.0]\n"
        "wilson(Tally(2, 3, 'conversation'))\n"
        "standard_error(Clusters('conversation', ('a', 'b'), (0.5, 1.0)))\n"
        "standard_error(turns)\n"
        "wilson(turns)\n"
        "wilson(Tally(2, 3, 'turn'))\n"
        "Clusters('turn', ('a',), (1.0,))\n"
    )

    out, _, _ = api.run(["--strict", "--no-incremental", "--follow-imports=silent", str(path)])

    lines = {int(line.split(":")[1]) for line in out.splitlines() if ": error:" in line}
    assert lines == {5, 6, 7, 8}, out


def test_measurements_of_one_unit_are_one_cluster() -> None:
    """Grouping keeps what belongs together; the same id twice is refused."""
    result = Clusters.group("conversation", [("b", 1), ("a", 2), ("b", 3)])

    assert (result.ids, result.values) == (("a", "b"), ((2,), (1, 3)))
    with pytest.raises(ValueError, match="occurs twice"):
        Clusters("conversation", ("a", "a"), (1, 2))
    with pytest.raises(ValueError, match="2 ids and 1 values"):
        Clusters("conversation", ("a", "b"), (1,))


def test_a_tally_counts_single_answers_only() -> None:
    """A mean of several epochs is no yes and no no."""
    assert Tally.of(Clusters("scenario", ("a", "b"), (True, False))) == Tally(1, 2, "scenario")
    with pytest.raises(ValueError, match="yes and no"):
        Tally.of(Clusters("scenario", ("a",), (0.5,)))


def test_pairs_are_what_both_have() -> None:
    """By id, the rest named; unlike units never pair."""
    a = Clusters("scenario", ("x", "y"), (1, 2))
    b = Clusters("scenario", ("z", "y"), (3, 4))

    result = pair(a, b)

    assert (result.pairs.ids, result.pairs.values) == (("y",), ((2, 4),))
    assert (result.only_first, result.only_second) == (("x",), ("z",))
    with pytest.raises(ValueError, match="cannot be paired"):
        pair(a, Clusters("prompt", ("x",), (1,)))
