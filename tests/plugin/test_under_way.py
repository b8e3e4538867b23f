"""How many units are under way at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_spiral.plugin import execution
from pytest_spiral.plugin.execution import MOST_UNDER_WAY, Execution
from pytest_spiral.tempaffect.unit import ScenarioUnit


class Counting:
    """A runner, and its engine, that starts units and ends none before one is waited for."""

    def __init__(self) -> None:
        self.submitted: list[object] = []
        self.ended = 0
        self.engine = self

    def submit(self, unit: object) -> None:
        self.submitted.append(unit)

    @property
    def under_way(self) -> int:
        return len(self.submitted) - self.ended

    def wait(self, unit: object, tick: Callable[[], None]) -> object:
        self.ended += 10
        tick()
        raise KeyboardInterrupt

    def stop(self) -> None:
        """Nothing to stop."""


def test_of_very_many_units_some_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many are started as may be under way at once, and as some end, also while one is waited for, others follow."""
    units = [ScenarioUnit("m", "raw", f"s-{number:05}") for number in range(MOST_UNDER_WAY + 50)]
    monkeypatch.setattr(execution, "runnable_units", lambda items: list(items))
    runner: Any = Counting()
    item: Any = SimpleNamespace(session=SimpleNamespace(items=units), stash={})
    content: Any = SimpleNamespace()
    running = Execution(content, lambda: runner, lambda items: items)

    running.pytest_runtest_protocol(item, None)
    at_first = len(runner.submitted)
    with pytest.raises(KeyboardInterrupt):
        running.scenario_result(item, units[MOST_UNDER_WAY + 5])

    assert at_first == MOST_UNDER_WAY
    # The one that is waited for is started by that, and not once more.
    following = [*units[: MOST_UNDER_WAY + 5], *units[MOST_UNDER_WAY + 6 : MOST_UNDER_WAY + 11]]
    assert runner.submitted == following
