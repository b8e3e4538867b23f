"""Gates to begin with, and how much may be missing for a verdict: `data/verdict.toml` and `data/gate_recipes.toml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tables import PerMille, Positive, Table, Text, read_table


class MissingLimits(Table):
    """The most measurements that may be missing for a verdict: the larger of a share and a number."""

    limit_per_mille: PerMille
    limit_at_least: Positive


class ProposedGates(Table):
    """A gate by what the run measures, where no recipe fits."""

    prefixes: Text
    conversations: Text
    composite: Text
    tempaffect: Text


class _Verdict(Table):
    missing: MissingLimits
    proposed: ProposedGates


@cache
def _verdict() -> _Verdict:
    return read_table(_Verdict, data_root() / "verdict.toml")


def missing_limits() -> MissingLimits:
    """How much may be missing for a verdict."""
    return _verdict().missing


def proposed_gates() -> ProposedGates:
    """Gates to begin with."""
    return _verdict().proposed


def gate_recipes() -> Mapping[str, Sequence[str]]:
    """Expressions of gates by the name of a recipe."""
    return read_toml(data_root() / "gate_recipes.toml")
