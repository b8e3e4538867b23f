"""The role of the process the user started: it leads the run, whoever runs the items."""

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
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_spiral.errors import UserError
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.evaluate.verdict import TERMINATED, exit_code, missing_limit
from pytest_spiral.plugin.items import SUITE_FILES, check_nodes, split_arguments
from pytest_spiral.plugin.junit import add_suite_properties
from pytest_spiral.plugin.role import PROGRESS, Role, runnable_units
from pytest_spiral.report.lines import Tone, plain
from pytest_spiral.report.model import Report, Verdict
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.usage import plan_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.run.content import load_content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.plan import RunPlan, make_plan, share_of
from pytest_spiral.run.remote_workers import unpack
from pytest_spiral.run.runner import Runner
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation, conversation_from_json
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.results import ITEM_RESULT, item_of
from pytest_spiral.tempaffect.unit import ScenarioUnit

if TYPE_CHECKING:
    from pytest_spiral.plugin.distribution import XdistLead
    from pytest_spiral.run.estimate import Estimate

__all__ = ["LeadRole"]


class LeadRole(Role):
    """The process the user started: prepares the run, gathers the results, writes the report, decides."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        folder = config.invocation_params.dir
        try:
            content = load_content(settings, folder)
            super().__init__(config, settings, content, ())
            plan = make_plan(settings, content, self.environ, datetime.now(UTC))
            self.lead = RunController(plan, content, self.environ)
            self.nodes, others = self._split_arguments(config, plan)
            check_nodes(self.nodes, self._unit_ids())
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        config.args = others
        config.args_source = config.ArgsSource.ARGS
        self.prepared = False
        self.report: Report | None = None
        self.estimates: Sequence[Estimate] | None = None
        self._foreign_failures = 0
        # Why nothing more could be kept, in this process or a worker.
        self._store_failure: str | None = None
        self._terminated = False
        if settings.plan and config.getoption("dist", "no") != "no":
            # Nothing runs, so there is nothing to distribute.
            config.option.dist, config.option.tx = "no", []
        self.workers: XdistLead | None = None
        self._workers_progress: dict[str, tuple[int, int]] = {}
        self._distribution: str = config.getoption("dist", "no")
        if self._distribution == "each":
            raise pytest.UsageError("--dist each would ask every model everything once per worker; leave it out")
        self.distributes = self._distribution != "no" and not config.getoption("collectonly")
        self._catch_sigterm()

    def _unit_ids(self) -> set[str]:
        return {unit.id for unit in self._all_units()}

    @staticmethod
    def _split_arguments(config: pytest.Config, plan: RunPlan) -> tuple[list[str], list[str]]:
        if config.args_source is not config.ArgsSource.ARGS:
            return [SUITE_FILES[suite] for suite in plan.suites], []
        return split_arguments(config.args, config.invocation_params.dir)

    @property
    def plan(self) -> RunPlan:
        return self.lead.plan

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            self._runner = Runner(self.plan, self.content, self.lead.store, self.environ)
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
        if self.config.getoption("collectonly") or self.settings.plan:
            return
        try:
            self.lead.prepare()
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        if self.workers is None:
            self.reach()

    def reach(self) -> None:
        """Know that every model can be reached, before anything is asked of it. Raises `pytest.UsageError`."""
        try:
            self.lead.reach()
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        self.prepared = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """With --plan: estimate what was collected instead of running it."""
        if not self.settings.plan or self.config.getoption("collectonly") or session.testsfailed:
            return None
        from pytest_spiral.run.estimate import rehearse

        try:
            self.estimates = rehearse(self.plan, self.content, self.environ, runnable_units(session.items))
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        return True

    def pytest_report_header(self) -> list[str]:
        """Name the run, its models and its resume handle."""
        models = ", ".join(plain(model.spec) for model in self.plan.models)
        lines = [f"spiral: {models}; suites {', '.join(self.plan.suites)}; run {self.plan.run_id}"]
        if self._distribution not in ("no", "load"):
            lines.append(f"spiral: --dist {self._distribution} hands out items one by one: workers ask two at a time")
        if self.settings.replay:
            lines.append(f"spiral: recorded in {plain(self.settings.replay)}")
        actors = [f"seeker {plain(self.plan.user.spec)}"] if self.plan.user else []
        actors += [f"judge {plain(judge.spec)}" for judge in self.plan.judges]
        if "spiral" in self.plan.suites and actors:
            lines.append(f"spiral: {', '.join(actors)}")
        return [*lines, *(f"spiral: {plain(note)}" for note in self.plan.left_out())]

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        if self._started:
            return []
        self._started = True
        return item.session.items

    def _interval(self) -> float:
        return self.progress_seconds if sys.stdout.isatty() else self.log_seconds

    def _tell(self, item: object, done: int, submitted: int) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is None:
            return
        capture = self.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            reporter.ensure_newline()
            reporter.write_line(f"spiral: {done} of {submitted} done")

    def _hear(self, report: pytest.TestReport) -> None:
        """What a worker says while it waits; at most as often as one process would speak."""
        self._workers_progress[report.__dict__["worker_id"]] = tuple(report.__dict__["spiral_progress"])
        now = time.monotonic()
        if now - self._last_progress >= self._interval():
            self._last_progress = now
            done, submitted = (sum(numbers) for numbers in zip(*self._workers_progress.values(), strict=True))
            self._tell(report, done, submitted)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Progress is no outcome: no dot, no count."""
        return ("", "", "") if report.when == PROGRESS else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather the measurements, and tell failures of tests from failures of instruments."""
        if report.when == PROGRESS:
            self._hear(report)
            return
        self.take_replies(report.__dict__.get("spiral_replies"))
        # Taken out of the report: pytest keeps all reports to the end.
        payload = json.loads(report.__dict__.pop("spiral", "null"))
        if payload is not None and payload["result"] is None:
            self._store_failure = payload["failure"]
        elif payload is not None:
            self._keep(payload["suite"], payload["result"])
        if report.failed and not _is_instrument_failure(report, payload):
            self._foreign_failures += 1

    def take_replies(self, packed: str | None) -> None:
        """Keep the replies of a worker that has no access to the store."""
        if packed is not None:
            unpack(packed, self.lead.store)

    def _keep(self, suite: str, result: Mapping[str, Any]) -> None:
        if suite == "spiral":
            talk = conversation_from_json(result)
            self.lead.measured.conversations[ConversationUnit(talk.model, talk.prompt_id, talk.index)] = talk
        else:
            item = item_of(ITEM_RESULT.validate_python(result), self.content.suite.by_id)
            self.lead.measured.items[ScenarioUnit(item.model, item.mode, item.scenario_id, item.epoch)] = item

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be collected is a failure of the user's own."""
        self._foreign_failures += report.failed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, Any, Any]:
        """Write the report and decide the exit code, whatever others add to it."""
        self._finish(session, exitstatus)
        decided = int(session.exitstatus)
        result = yield
        # Some plugins (syrupy) add the status they were given, in which a failed instrument is a failed test.
        if session.exitstatus == decided | exitstatus:
            session.exitstatus = decided
        return result

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._runner is not None:
            # An interrupted run must not go on paying for answers while its report is made.
            self._runner.stop()
        if self._terminated and exitstatus == pytest.ExitCode.INTERRUPTED:
            exitstatus = session.exitstatus = TERMINATED
        if not self.prepared or not (self.nodes or self.lead.measured.items or self.lead.measured.conversations):
            return
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        # -x and --maxfail stop early without another exit status.
        complete = ended and not (session.shouldfail or session.shouldstop)
        if complete and self.workers is not None:
            self._miss(self.workers.lost())
        try:
            results = self.lead.results(list(self.config.invocation_params.args), datetime.now(UTC), complete=complete)
            self.report = evaluate(results)
            write_report(self.report, Path(self.plan.run_dir), os.environ.get("GITHUB_STEP_SUMMARY"))
        except UserError as error:
            self._say(str(error))
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        add_suite_properties(self.config, self.report)
        if self._store_failure is not None:
            self._say(self._store_failure)
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        verdict: Verdict | None = self.report.verdict
        if self.settings.shard_number is not None and verdict != "fail" and not self._lacks_its_share():
            # One shard has no verdict: all of its own is there, the rest is for the others.
            verdict = None
        session.exitstatus = exit_code(int(exitstatus), verdict, self._foreign_failures > 0)

    def _lacks_its_share(self) -> bool:
        assert self.settings.shard_number is not None
        wanted = share_of([*self._all_units()], self.settings.shard_number)
        found: list[Item | Conversation | None] = [self.lead.measured.of(unit) for unit in wanted]
        measured = (Status.MEASURED, Status.MODEL_FAILED)
        missing = sum(result is None or result.status not in measured for result in found)
        return missing > missing_limit(len(wanted))

    def _miss(self, lost: Sequence[str]) -> None:
        """Items that workers were given and never reported: they must not go unnoticed."""
        if lost:
            self._say(f"{len(lost)} items were given to workers and never reported, the first {lost[0]}")
        # Bundled ones are missing from the report, which decides what that means.
        self._foreign_failures += sum(name.partition("::")[0] not in SUITE_FILES.values() for name in lost)

    def _say(self, text: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"ERROR: {plain(text)}", red=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """One block per model, gates, verdict; or the plan."""
        if self.estimates is not None:
            lines = [*plan_lines(self.estimates)]
        elif self.report is not None:
            lines = summary_lines(self.report, os.path.relpath(self.plan.run_dir))
        else:
            return
        terminalreporter.section("spiral")
        for line, tone in lines:
            terminalreporter.write_line(line, **_MARKUP[tone])


_MARKUP: Mapping[Tone, dict[str, bool]] = {
    "plain": {},
    "dim": {"light": True},
    "good": {"green": True},
    "bad": {"red": True},
    "doubt": {"yellow": True},
}


def _is_instrument_failure(report: pytest.TestReport, payload: Mapping[str, Any] | None) -> bool:
    if payload is not None:
        return payload["failure"] is not None
    # A worker that died at a bundled item says nothing about the model; the item is missing.
    crashed = report.when not in ("setup", "call", "teardown")
    return crashed and report.nodeid.partition("::")[0] in SUITE_FILES.values()


def _release_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
