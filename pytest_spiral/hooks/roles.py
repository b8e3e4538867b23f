"""Who does what: the process the user started leads the run, it or its xdist workers run the items."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

from pytest_spiral.errors import UserError
from pytest_spiral.gates import Gate
from pytest_spiral.hooks.items import (
    SUITE_FILES,
    InstrumentFailure,
    ScenarioResult,
    check_nodes,
    split_arguments,
    suite_modules,
)
from pytest_spiral.records import Status
from pytest_spiral.report.build import build_report
from pytest_spiral.report.text import Tone, plain, summary_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.session.lead import Lead
from pytest_spiral.session.plan import RunPlan, make_plan, parse_gates, scenario_units
from pytest_spiral.session.runner import EvaluatedModel, Runner
from pytest_spiral.session.units import ScenarioUnit
from pytest_spiral.settings import Settings, load_environment, make_settings
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.item import item_from_json, item_to_json
from pytest_spiral.tempaffect.suite import Suite, load_suite
from pytest_spiral.verdict import TERMINATED, exit_code

__all__ = ["LeadRole", "Role", "WorkerRole", "take_role"]

RESULT = pytest.StashKey[str]()
# How often a person waiting at a terminal hears something.
_PROGRESS_SECONDS = 5.0


def take_role(config: pytest.Config, options: Mapping[str, Any]) -> Role:
    """Register the role of this process. Raises `pytest.UsageError` for whatever the user can mend."""
    role = WorkerRole(config) if hasattr(config, "workerinput") else LeadRole(config, options)
    config.pluginmanager.register(role, "spiral-role")
    if role.distributes:
        from pytest_spiral.hooks.xdist import XdistLead

        config.pluginmanager.register(XdistLead(role), "spiral-xdist")
    return role


class Role:
    """What leading and working processes have in common: collecting bundled items and running them."""

    distributes = False

    def __init__(self, config: pytest.Config, settings: Settings, suite: Suite, nodes: Sequence[str]) -> None:
        self.config = config
        self.settings = settings
        self.suite = suite
        self.nodes = nodes
        self.environ = load_environment(os.environ, config.invocation_params.dir)
        self._units = {unit.id: unit for unit in scenario_units(settings, suite)}
        self._runner: Runner | None = None
        self._started = False

    @property
    def runner(self) -> Runner:
        raise NotImplementedError

    def close(self) -> None:
        """Stop background work of this process."""
        if self._runner is not None:
            self._runner.close()

    def scenario_params(self) -> list[Any]:
        """All units of the run as parameters, marked with suite and family."""
        return [
            pytest.param(
                unit,
                id=unit.id,
                marks=[pytest.mark.tempaffect, getattr(pytest.mark, self.suite[unit.scenario_id].family.value)],
            )
            for unit in self._units.values()
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Add the bundled items to the session's."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            report.result = [*report.result, *suite_modules(collector, self.nodes)]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Start the units of all items this process is sure to run, before the first one waits."""
        for ready in self._prefetchable(item, nextitem):
            unit = _unit_of(ready)
            if unit is not None and not _is_skipped(ready):
                self.runner.submit(unit)

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        raise NotImplementedError

    def scenario_result(self, item: pytest.Item, unit: ScenarioUnit) -> ScenarioResult:
        """Wait for a unit. Raises `InstrumentFailure` where nothing was measured."""
        found = self.runner.result(unit, self._tick)
        item.stash[RESULT] = json.dumps(item_to_json(found))
        if found.status is Status.INSTRUMENT_FAILED:
            raise InstrumentFailure(f"{found.reason}: {found.detail}")
        accepted = not self.settings.strict_items or (found.score is not None and found.score.useful_bounded)
        return ScenarioResult(found, accepted)

    def _tick(self) -> None:
        return None

    def chat_model(self) -> EvaluatedModel:
        """The first evaluated model, for a user's own tests."""
        return self.runner.evaluated(self.settings.model[0])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
        """Let the measurement ride home on the test report, as one ASCII string that any channel can carry."""
        report: pytest.TestReport = yield
        payload = item.stash.get(RESULT, None)
        if payload is not None:
            report.__dict__["spiral"] = payload
            del item.stash[RESULT]
            if report.failed and json.loads(payload)["status"] == Status.INSTRUMENT_FAILED:
                # The sentence says it all; frames of ours would bury it.
                report.longrepr = f"InstrumentFailure: {plain(json.loads(payload)['detail'])}"
        return report


def _unit_of(item: pytest.Item) -> ScenarioUnit | None:
    callspec = getattr(item, "callspec", None)
    unit = callspec.params.get("scenario_result") if callspec else None
    return unit if isinstance(unit, ScenarioUnit) else None


def _is_skipped(item: pytest.Item) -> bool:
    from _pytest.skipping import evaluate_skip_marks

    return evaluate_skip_marks(item) is not None


class WorkerRole(Role):
    """An xdist worker: runs the items it is given, reports to the lead."""

    def __init__(self, config: pytest.Config) -> None:
        handed = json.loads(config.workerinput["spiral"])  # type: ignore[attr-defined]  # set by xdist
        self.plan = RunPlan.model_validate_json(handed["plan"])
        super().__init__(config, self.plan.settings, load_suite(), handed["nodes"])
        config.args = list(handed["args"])

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            store = RunStore.join(self.plan.store_path)
            self._runner = Runner(self.plan, self.suite, store, self.environ)
        return self._runner

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        # xdist may still take other items away from this worker; these two it cannot.
        return [item] if nextitem is None else [item, nextitem]


class LeadRole(Role):
    """The process the user started: prepares the run, gathers the results, writes the report, decides."""

    def __init__(self, config: pytest.Config, options: Mapping[str, Any]) -> None:
        folder = config.invocation_params.dir
        try:
            settings = make_settings(options)
            self.gates: Sequence[Gate] = parse_gates(settings)
            suite = load_suite()
            nodes, others = self._split_arguments(config, settings)
            super().__init__(config, settings, suite, nodes)
            check_nodes(nodes, {unit.id for unit in self._units.values()})
            plan = make_plan(settings, self.environ, folder, datetime.now(UTC))
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        config.args = others
        config.args_source = config.ArgsSource.ARGS
        self.lead = Lead(plan, suite, self.environ)
        self.prepared = False
        self.report: Mapping[str, Any] | None = None
        self._foreign_failures = 0
        self._terminated = False
        self._last_progress = time.monotonic()
        self.distributes = config.getoption("dist", "no") != "no" and not config.getoption("collectonly")
        self._catch_sigterm()

    @staticmethod
    def _split_arguments(config: pytest.Config, settings: Settings) -> tuple[list[str], list[str]]:
        if config.args_source is not config.ArgsSource.ARGS:
            return [SUITE_FILES[suite] for suite in settings.suite], []
        return split_arguments(config.args, config.invocation_params.dir)

    @property
    def plan(self) -> RunPlan:
        return self.lead.plan

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            assert self.lead.store is not None
            self._runner = Runner(self.plan, self.suite, self.lead.store, self.environ)
        return self._runner

    def close(self) -> None:
        super().close()
        self.lead.close()

    def _catch_sigterm(self) -> None:
        """A terminated run still writes its report. Only where nobody else handles the signal."""
        try:
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                return
            signal.signal(signal.SIGTERM, self._terminate)
        except ValueError:
            # Not the main thread: the embedding program keeps its own signals.
            return
        self.config.add_cleanup(_release_sigterm)

    def _terminate(self, _signal: int, _frame: FrameType | None) -> NoReturn:
        self._terminated = True
        # Without an exit status of its own, under which pytest would leave the summary out.
        pytest.exit("terminated")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Prepare the run before workers start and before anything is collected."""
        if self.config.getoption("collectonly"):
            return
        try:
            self.lead.prepare()
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        self.prepared = True

    def pytest_report_header(self) -> list[str]:
        """Name the run, its models and its resume handle."""
        models = ", ".join(plain(model) for model in self.settings.model)
        return [f"spiral: {models}; suites {', '.join(self.settings.suite)}; run {self.plan.run_id}"]

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        if self._started:
            return []
        self._started = True
        return item.session.items

    def _tick(self) -> None:
        """Tell a person at a terminal how far it is; say nothing into a pipe."""
        now = time.monotonic()
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None or not sys.stdout.isatty() or now - self._last_progress < _PROGRESS_SECONDS:
            return
        self._last_progress = now
        done, submitted = self.runner.progress()
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(f"spiral: {done} of {submitted} answered")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather the measurements, and tell failures of tests from failures of instruments."""
        payload = report.__dict__.get("spiral")
        item = item_from_json(json.loads(payload), self.suite.by_id) if payload else None
        if item is not None:
            self.lead.items[ScenarioUnit(item.model, item.mode, item.scenario_id, item.epoch)] = item
        if report.failed and (item is None or item.status is not Status.INSTRUMENT_FAILED):
            self._foreign_failures += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be collected is a failure of the user's own."""
        self._foreign_failures += report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report and decide the exit code."""
        if self._terminated and exitstatus == pytest.ExitCode.INTERRUPTED:
            exitstatus = session.exitstatus = TERMINATED
        if not self.prepared or (not self.nodes and not self.lead.items):
            return
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        # -x and --maxfail stop early without another exit status.
        complete = ended and not (session.shouldfail or session.shouldstop)
        try:
            results = self.lead.results(
                argv=list(self.config.invocation_params.args), finished_at=datetime.now(UTC), complete=complete
            )
            self.report = build_report(results, self.gates)
            write_report(self.report, Path(self.plan.run_dir), os.environ.get("GITHUB_STEP_SUMMARY"))
        except UserError as error:
            self._say(str(error))
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        session.exitstatus = exit_code(int(exitstatus), self.report["verdict"], self._foreign_failures > 0)

    def _say(self, text: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"ERROR: {plain(text)}", red=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One block per model, gates, verdict."""
        if self.report is None:
            return
        terminalreporter.section("spiral")
        for line, tone in summary_lines(self.report, os.path.relpath(self.plan.run_dir)):
            terminalreporter.write_line(line, **_MARKUP[tone])


_MARKUP: Mapping[Tone, dict[str, bool]] = {
    "plain": {},
    "dim": {"light": True},
    "good": {"green": True},
    "bad": {"red": True},
    "doubt": {"yellow": True},
}


def _release_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
