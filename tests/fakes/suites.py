"""Suites that stand for another one."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.suite import Suite


def under_hashes_of(suite: Suite, scenarios: Iterable[Scenario]) -> Suite:
    """A suite of these scenarios that goes by the hashes of `suite`."""
    made = Suite(tuple(scenarios))
    vars(made).update(suite_hash=suite.suite_hash, components=suite.components)
    return made
