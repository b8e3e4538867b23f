"""The bundled suites as pytest items, under the same node ids wherever the package is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.report.lines import plain
from pytest_spiral.resources import scenarios_root
from pytest_spiral.run.plan import Unit
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation, Finding
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.unit import ScenarioUnit

SUITE_FILES = {"tempaffect": "scenarios/test_tempaffect.py", "spiral": "scenarios/test_spiral.py"}
_TESTS = {"scenarios/test_tempaffect.py": "test_scenario", "scenarios/test_spiral.py": "test_conversation"}


class InstrumentFailure(Exception):
    """Something other than the evaluated model failed, so nothing was measured."""


@dataclass(frozen=True)
class ScenarioResult:
    """What a bundled test asserts on. accepted: useful and bounded, or not asked to be."""

    item: Item
    scenario: Scenario
    accepted: bool

    def explain(self) -> str:
        """Why the answer was not useful and bounded, one reason a line."""
        item = self.item
        if item.checks is None or item.answer is None:
            return plain(str(item.reason))
        lines = [
            f"{name}: {getattr(item.answer, name)!r}, expected {getattr(self.scenario.expected, name)!r}"
            for name in ("boundary_action", "should_escalate")
            if not item.points[name]
        ]
        failed = [name for name, hit in item.points.items() if not hit]
        lines += [
            f"{name}: {reason}" for name, reasons in item.checks.reasons.items() if name in failed for reason in reasons
        ]
        return "\n".join(["not useful and bounded", *map(plain, lines)])


@dataclass(frozen=True)
class ConversationResult:
    """What a bundled test asserts on. harm: findings that --strict-items does not accept."""

    conversation: Conversation
    harm: Sequence[Finding]

    @property
    def accepted(self) -> bool:
        return not self.harm

    def explain(self) -> str:
        """The findings, one a line."""
        lines = [f"turn {f.turn + 1}: {f.behaviour}, strength {f.strength}: {f.quote}" for f in self.harm]
        return "\n".join(map(plain, lines))


def split_arguments(arguments: Iterable[str], invocation_dir: Path) -> tuple[list[str], list[str]]:
    """Command-line arguments that name bundled items, as node ids, and all others."""
    ours: list[str] = []
    others: list[str] = []
    for argument in arguments:
        node = _bundled_node(argument, invocation_dir)
        (others if node is None else ours).append(argument if node is None else node)
    return ours, others


def _bundled_node(argument: str, invocation_dir: Path) -> str | None:
    location, bracket, parameters = argument.partition("[")
    path, separator, names = location.partition("::")
    for file in SUITE_FILES.values():
        shipped = scenarios_root() / Path(file).name
        given = invocation_dir / path
        # A file of that name in the user's project is theirs.
        if given == shipped or (Path(path) == Path(file) and (not given.exists() or given.samefile(shipped))):
            return file + separator + names + bracket + parameters
    return None


def check_nodes(nodes: Iterable[str], units: Collection[str]) -> None:
    """Raise `ConfigError` for a node id that names no bundled item of a run with these units."""
    for node in nodes:
        file, _, name = node.partition("::")
        function, bracket, unit = name.partition("[")
        known = not name or (function == _TESTS[file] and (not bracket or unit.removesuffix("]") in units))
        if not known:
            raise ConfigError(f"no such item in this run: {node}; --collect-only lists them all")


def unit_of(item: pytest.Item) -> Unit | None:
    """The unit behind an item, None for an item that has none."""
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec else {}
    unit = params.get("scenario_result") or params.get("conversation_result")
    return unit if isinstance(unit, ScenarioUnit | ConversationUnit) else None


def suite_modules(session: pytest.Session, nodes: Sequence[str]) -> list[SuiteModule]:
    """Collectors for bundled node ids: a file, a function, or one item."""
    modules = []
    for file in SUITE_FILES.values():
        wanted = [node.removeprefix(file).removeprefix("::") for node in nodes if node.partition("::")[0] == file]
        if wanted:
            modules.append(SuiteModule.make(session, file, wanted))
    return modules


class SuiteModule(pytest.Module):
    """A bundled test module. It lies wherever the package lies, and its node id does not say so."""

    wanted: Sequence[str] = ()

    @classmethod
    def make(cls, session: pytest.Session, file: str, wanted: Sequence[str]) -> SuiteModule:
        path = scenarios_root() / Path(file).name
        module: SuiteModule = cls.from_parent(session, path=path, name=file, nodeid=file)
        module.wanted = wanted
        return module

    def _getobj(self) -> ModuleType:
        # Loaded by path: nothing of the user's may shadow it, and sys.path stays as it was.
        spec = importlib.util.spec_from_file_location(f"pytest_spiral._bundled.{self.path.stem}", self.path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        found = [node for node in super().collect() if self._is_wanted(node.name)]
        for node in found:
            if isinstance(node, pytest.Item):
                # Shown in verbose output and JUnit; the true place of the file would be noise there.
                node.location = (self.nodeid, 0, node.name)
        missing = [name for name in self.wanted if name and not any(self._matches(node.name, name) for node in found)]
        if missing:
            raise self.CollectError(f"{self.nodeid}: no such item: {', '.join(missing)}; --collect-only lists them")
        return found

    def _is_wanted(self, name: str) -> bool:
        return any(self._matches(name, wanted) for wanted in self.wanted)

    @staticmethod
    def _matches(name: str, wanted: str) -> bool:
        return wanted in ("", name) or ("[" not in wanted and name.partition("[")[0] == wanted)
