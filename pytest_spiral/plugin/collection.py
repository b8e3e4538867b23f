"""Collecting the bundled suites: their items join those of the session, the same in every process of a run.

They have the same node ids wherever the package is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Generator, Iterable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import ModuleType

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.plugin._compat import ParameterSet
from pytest_spiral.resources import scenarios_root
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan, Unit, all_units, conversation_units, scenario_units, shard_of
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.tempaffect.unit import ScenarioUnit

SUITE_FILES = {"tempaffect": "scenarios/test_tempaffect.py", "spiral": "scenarios/test_spiral.py"}
_TESTS = {"scenarios/test_tempaffect.py": "test_scenario", "scenarios/test_spiral.py": "test_conversation"}


def split_arguments(arguments: Iterable[str], invocation_dir: Path) -> tuple[list[str], list[str]]:
    """Command-line arguments that name bundled items, as node ids, and all others."""
    ours: list[str] = []
    others: list[str] = []
    for argument in arguments:
        location, bracket, parameters = argument.partition("[")
        path, separator, names = location.partition("::")
        given = invocation_dir / path
        for file in SUITE_FILES.values():
            shipped = scenarios_root() / Path(file).name
            # A file of that name in the user's project is theirs.
            if given == shipped or (Path(path) == Path(file) and (not given.exists() or given.samefile(shipped))):
                ours.append(file + separator + names + bracket + parameters)
                break
        else:
            others.append(argument)
    return ours, others


def check_nodes(nodes: Iterable[str], units: AbstractSet[str]) -> None:
    """Raise `ConfigError` for a node id that names no bundled item of a run with these units."""
    for node in nodes:
        file, _, name = node.partition("::")
        function, bracket, parameters = name.partition("[")
        unit = parameters.removesuffix("]") if parameters.endswith("]") else None
        known = not name or (function == _TESTS[file] and (not bracket or unit in units))
        if not known:
            raise ConfigError(f"no such item in this run: {node}; --collect-only lists them all")


def unit_of(item: pytest.Item) -> Unit | None:
    """The unit behind an item, None for an item that has none."""
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec else {}
    unit = params.get("scenario_result") or params.get("conversation_result")
    return unit if isinstance(unit, ScenarioUnit | ConversationUnit) else None


class Collection:
    """Hooks that collect bundled items. nodes: the bundled node ids that were asked for."""

    def __init__(self, config: pytest.Config, plan: RunPlan, content: Content, nodes: Sequence[str]) -> None:
        self._config = config
        self._plan = plan
        self._content = content
        self._nodes = nodes

    def params(self, fixture: str) -> list[ParameterSet]:
        """All units of a fixture's suite, each marked with the suite and its family or category."""
        units = scenario_units if fixture == "scenario_result" else conversation_units
        registered = {mark.partition(":")[0] for mark in self._config.getini("markers")}
        params = []
        for unit in units(self._plan, self._content):
            if isinstance(unit, ScenarioUnit):
                names = ["tempaffect", self._content.suite[unit.scenario_id].family.value]
            else:
                names = ["spiral", self._content.unheld(unit).category]
            # A category of a custom prompt file need not be a registered marker.
            marks = [getattr(pytest.mark, name) for name in names if name in registered]
            params.append(pytest.param(unit, id=unit.id, marks=marks))
        return params

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the bundled modules to the session's."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            for file in SUITE_FILES.values():
                wanted = [node.removeprefix(file).removeprefix("::") for node in self._nodes if node.startswith(file)]
                if wanted:
                    path = scenarios_root() / Path(file).name
                    module: SuiteModule = SuiteModule.from_parent(collector, path=path, name=file, nodeid=file)
                    module.wanted = wanted
                    report.result = [*(report.result or ()), module]
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


class SuiteModule(pytest.Module):
    """A bundled test module. It lies wherever the package lies, and its node id does not say so.

    wanted: names of a function or of one item; "" for the whole module.
    """

    wanted: Sequence[str] = ()

    def _getobj(self) -> ModuleType:
        # Loaded by path: nothing of the user's may shadow it, and sys.path stays as it was.
        spec = importlib.util.spec_from_file_location(f"pytest_spiral._bundled.{self.path.stem}", self.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        nodes = [*super().collect()]
        if missing := [wanted for wanted in self.wanted if not any(_names(wanted, node.name) for node in nodes)]:
            raise self.CollectError(f"{self.nodeid}: no such item: {', '.join(missing)}; --collect-only lists them")
        for node in nodes:
            if isinstance(node, pytest.Item):
                # Shown in verbose output and JUnit; the true place of the file would be noise there.
                node.location = (self.nodeid, 0, node.name)
        return [node for node in nodes if any(_names(wanted, node.name) for wanted in self.wanted)]


def _names(wanted: str, name: str) -> bool:
    return wanted in ("", name) or ("[" not in wanted and name.partition("[")[0] == wanted)
