"""What a sample consists of: independent units, and nothing else.

Turns of a conversation and findings in a turn are far from independent: treated as units they make intervals two to
three times too narrow. So every function that computes an interval, a test or a power takes `Clusters` or a `Tally`,
and both must name their unit. "turn" is not a valid unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

from pytest_spiral.grouping import grouped

__all__ = ["ClusterUnit", "Clusters", "Pairing", "Tally", "pair"]

ClusterUnit = Literal["scenario", "prompt", "conversation"]
"""What may count as independent: a scenario with its epochs, a prompt with its conversations, a conversation with its
turns (where each prompt has one)."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


def _check_unit(unit: str) -> None:
    if unit not in get_args(ClusterUnit):
        raise ValueError(f"{unit!r} is not an independent unit; group values by {' or '.join(get_args(ClusterUnit))}")


@dataclass(frozen=True, slots=True)
class Clusters(Generic[T_co]):
    """Independent units, each with everything measured on it as one value.

    Attributes:
        unit: What the units are.
        ids: Names of the units, each once.
        values: One value per unit, in the order of `ids`.

    Raises:
        ValueError: For an unknown unit, for an id that occurs twice, and for unequal lengths.
    """

    unit: ClusterUnit
    ids: tuple[str, ...]
    values: tuple[T_co, ...]

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        if len(set(self.ids)) != len(self.ids):
            raise ValueError(f"a {self.unit} occurs twice: its measurements belong in one cluster")
        if len(self.ids) != len(self.values):
            raise ValueError(f"{len(self.ids)} ids and {len(self.values)} values")

    @staticmethod
    def group(unit: ClusterUnit, measurements: Iterable[tuple[str, U]]) -> Clusters[tuple[U, ...]]:
        """Measurements, each with the id of its unit, as one tuple per unit, sorted by id."""
        groups = grouped(measurements)
        ids = tuple(sorted(groups))
        return Clusters(unit, ids, tuple(tuple(groups[name]) for name in ids))

    def map(self, change: Callable[[T_co], U]) -> Clusters[U]:
        """The same units with changed values."""
        return Clusters(self.unit, self.ids, tuple(map(change, self.values)))

    def __len__(self) -> int:
        return len(self.ids)


class Pairing(NamedTuple, Generic[T]):
    """Two samples matched by unit: the common units with both values, and the ids that only one sample has."""

    pairs: Clusters[tuple[T, T]]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def pair(first: Clusters[T], second: Clusters[T]) -> Pairing[T]:
    """Match two samples by the ids of their units. Raises ValueError for different kinds of units."""
    if first.unit != second.unit:
        raise ValueError(f"a {first.unit} cannot be paired with a {second.unit}")
    mine, theirs = (dict(zip(sample.ids, sample.values, strict=True)) for sample in (first, second))
    common = tuple(name for name in first.ids if name in theirs)
    return Pairing(
        Clusters(first.unit, common, tuple((mine[name], theirs[name]) for name in common)),
        tuple(name for name in first.ids if name not in theirs),
        tuple(name for name in second.ids if name not in mine),
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of n independent units have a property. Raises ValueError for hits outside 0..n."""

    hits: int
    n: int
    unit: ClusterUnit

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        if not 0 <= self.hits <= self.n:
            raise ValueError(f"hits must lie in 0..n, got {self.hits} of {self.n}")

    @staticmethod
    def of(clusters: Clusters[bool] | Clusters[float]) -> Tally:
        """Count the units whose value is 1. Raises ValueError for a value that is neither 0 nor 1."""
        values: Sequence[float] = clusters.values
        if any(value not in (0, 1) for value in values):
            raise ValueError("a tally counts yes and no; a mean of several epochs or conversations is neither")
        return Tally(round(sum(values)), len(values), clusters.unit)
