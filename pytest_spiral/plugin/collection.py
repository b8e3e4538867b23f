"""Collecting the bundled suites: their items join those of the session, the same in every process of a run."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from pytest_spiral.plugin._compat import ParameterSet
from pytest_spiral.plugin.items import suite_modules, unit_of
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan, all_units, conversation_units, scenario_units, shard_of


class Collection:
    """Hooks that collect bundled items.

    Args:
        config: Of this process.
        plan: Of the run.
        content: Of the run.
        nodes: The bundled node ids that were asked for.
    """

    def __init__(self, config: pytest.Config, plan: RunPlan, content: Content, nodes: Sequence[str]) -> None:
        self._config = config
        self._plan = plan
        self._content = content
        self._nodes = nodes

    def scenario_params(self) -> list[ParameterSet]:
        """All TempAffect units, marked with suite and family."""
        return [
            pytest.param(
                unit, id=unit.id, marks=_marks("tempaffect", self._content.suite[unit.scenario_id].family.value)
            )
            for unit in scenario_units(self._plan, self._content)
        ]

    def conversation_params(self) -> list[ParameterSet]:
        """All conversations, marked with suite and category."""
        registered = {mark.partition(":")[0] for mark in self._config.getini("markers")}
        return [
            pytest.param(
                unit,
                id=unit.id,
                # A category of a custom prompt file need not be a registered marker.
                marks=_marks("spiral", *({self._content.prompt_of(unit)[0]} & registered)),
            )
            for unit in conversation_units(self._plan, self._content)
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the bundled modules to the session's."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            report.result = [*(report.result or ()), *suite_modules(collector, self._nodes)]
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """With --shard: deselect the items of other shards."""
        shard = self._plan.settings.shard_number
        if shard is None:
            return
        units = set(shard_of(all_units(self._plan, self._content), shard))
        others = set(shard_of([item for item in items if unit_of(item) is None], shard))
        kept = [item for item in items if item in others or unit_of(item) in units]
        if len(kept) < len(items):
            chosen = set(kept)
            self._config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
            items[:] = kept


def _marks(*names: str) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, name) for name in names]
