"""What a sample is made of: independent units, and nothing else.

Turns of a conversation and findings of a turn are far from independent; taken for units they make intervals two to
three times too narrow. So whatever computes an interval, a test or a power demands `Clusters` or a `Tally`, and both
must name their unit. "turn" is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

__all__ = ["ClusterUnit", "Clusters", "Tally", "pair"]

ClusterUnit = Literal["scenario", "prompt", "conversation"]
"""What may count as independent: a scenario with its epochs, a prompt with its conversations, a conversation with its
turns (where each prompt has one)."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


def _check_unit(unit: str) -> None:
    if unit not in get_args(ClusterUnit):
        raise ValueError(f"{unit!r} is no independent unit; group its values by {' or '.join(get_args(ClusterUnit))}")


@dataclass(frozen=True, slots=True)
class Clusters(Generic[T_co]):
    """Independent units by id, each with all that was measured on it as one value.

    Raises ValueError for a unit that is none, for an id that occurs twice, and for unequal lengths.
    """

    unit: ClusterUnit
    ids: tuple[str, ...]
    values: tuple[T_co, ...]

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        if len(set(self.ids)) != len(self.ids):
            raise ValueError(f"a {self.unit} occurs twice: its measurements belong into one cluster")
        if len(self.ids) != len(self.values):
            raise ValueError(f"{len(self.ids)} ids and {len(self.values)} values")

    @staticmethod
    def group(unit: ClusterUnit, measurements: Iterable[tuple[str, U]]) -> Clusters[tuple[U, ...]]:
        """Measurements, each with the id of its unit, as one tuple per unit, in order of the ids."""
        found: dict[str, list[U]] = {}
        for name, value in measurements:
            found.setdefault(name, []).append(value)
        ids = tuple(sorted(found))
        return Clusters(unit, ids, tuple(tuple(found[name]) for name in ids))

    def map(self, change: Callable[[T_co], U]) -> Clusters[U]:
        """The same units with changed values."""
        return Clusters(self.unit, self.ids, tuple(map(change, self.values)))

    def __len__(self) -> int:
        return len(self.ids)


def pair(a: Clusters[T], b: Clusters[T]) -> tuple[Clusters[tuple[T, T]], tuple[str, ...], tuple[str, ...]]:
    """The units that both have, with both values, and the ids that only the first or only the second has.

    Raises ValueError for different kinds of units.
    """
    if a.unit != b.unit:
        raise ValueError(f"a {a.unit} cannot be paired with a {b.unit}")
    first, second = dict(zip(a.ids, a.values, strict=True)), dict(zip(b.ids, b.values, strict=True))
    common = tuple(name for name in a.ids if name in second)
    return (
        Clusters(a.unit, common, tuple((first[name], second[name]) for name in common)),
        tuple(name for name in a.ids if name not in second),
        tuple(name for name in b.ids if name not in first),
    )


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of n independent units had a property. Raises ValueError unless 0 <= hits <= n and the unit is one."""

    hits: int
    n: int
    unit: ClusterUnit

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        if not 0 <= self.hits <= self.n:
            raise ValueError(f"hits must lie in 0..n, got {self.hits} of {self.n}")

    @staticmethod
    def of(clusters: Clusters[bool] | Clusters[float]) -> Tally:
        """Count units with the value True or 1. Raises ValueError for a value that is neither 0 nor 1."""
        values: Sequence[float] = clusters.values
        if any(value not in (0, 1) for value in values):
            raise ValueError("a tally counts yes and no; a mean of several epochs or conversations is neither")
        return Tally(round(sum(values)), len(values), clusters.unit)
