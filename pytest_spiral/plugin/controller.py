"""The process the user started: it prepares the run, gathers the results, writes the report and decides."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from pytest_spiral.errors import ConfigError, LostStoreError, UserError
from pytest_spiral.evaluate.inputs import RunResults
from pytest_spiral.evaluate.report import evaluate, without_statistics
from pytest_spiral.evaluate.verdict import FAILED, NOTHING, PASSED, TERMINATED, exit_code, is_beyond_limit
from pytest_spiral.models.environment import load_environment
from pytest_spiral.plugin._compat import add_junit_properties
from pytest_spiral.plugin.collection import SUITE_FILES, Collection, check_nodes, split_arguments
from pytest_spiral.plugin.execution import ActiveParts, Execution, runnable_units, take_message, usage_errors
from pytest_spiral.plugin.options import on_command_line
from pytest_spiral.plugin.terminal import Progress, header_lines, write_error, write_section
from pytest_spiral.report.junit import suite_properties
from pytest_spiral.report.lines import Line
from pytest_spiral.report.model import Report, Verdict
from pytest_spiral.report.parts import Parts, tracebacks
from pytest_spiral.report.terminal import decision_lines, failed_lines, plan_lines, summary_lines
from pytest_spiral.report.write import write_report, write_results
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.floors import keep_floor, with_floors
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import Unit, all_units, make_plan, shard_of
from pytest_spiral.run.progress import Snapshot, snapshot
from pytest_spiral.run.remote_workers import unpack
from pytest_spiral.run.runner import Runner
from pytest_spiral.run.time_left import TimeLeft
from pytest_spiral.settings import Settings
from pytest_spiral.status import Status

if TYPE_CHECKING:
    from pytest_spiral.plugin.distribution import Distribution


PROGRESS_FILE = "progress.jsonl"


def start_controller(config: pytest.Config, settings: Settings) -> ActiveParts:
    """Make this process the controller. Raises `pytest.UsageError` for everything that the user can mend."""
    if settings.plan and config.getoption("dist", "no") != "no":
        # Nothing runs, so there is nothing to distribute.
        config.option.dist, config.option.tx = "no", []
    directory = config.invocation_params.dir
    with usage_errors():
        content = Content(settings, directory)
        environ = load_environment(os.environ, directory, trust=settings.trust_env)
        plan, floor = with_floors(make_plan(settings, content, environ, datetime.now(UTC)), content)
        run = RunController(plan, content, environ)
        run.measured.floor = floor
        if config.args_source is config.ArgsSource.ARGS:
            nodes, others = split_arguments(config.args, directory)
            if not nodes and (asked := on_command_line(config, "gate", "gate_recipe")):
                files = " ".join(SUITE_FILES[suite] for suite in plan.suites)
                raise ConfigError(
                    f"{asked}: the paths of the command line name none of the bundled items, so that no gate would be "
                    f"decided; leave the paths out, or add {files}"
                )
        else:
            nodes, others = [SUITE_FILES[suite] for suite in plan.suites], []
        check_nodes(nodes, {unit.id for unit in all_units(plan, content)})
    config.args = others
    config.args_source = config.ArgsSource.ARGS

    def open_runner() -> Runner:
        connections = Connections(run.plan, content, run.store, environ)
        controller.pauses = connections.pauses
        return Runner(Chats(run.plan, content, run.store, connections))

    distribution = config.getoption("dist", "no")
    if distribution == "each":
        raise pytest.UsageError("--dist each would send every request once per worker; leave it out")
    controller = Controller(config, run, nodes)
    execution = Execution(content, open_runner, lambda items: items, controller.progress.tick)
    controller.execution = execution
    collection = Collection(config, plan, content, nodes)
    for plugin, name in ((controller, "controller"), (collection, "collection"), (execution, "execution")):
        config.pluginmanager.register(plugin, f"spiral-{name}")
    if distribution != "no" and not config.getoption("collectonly"):
        # Its hooks exist only where pytest-xdist is active.
        from pytest_spiral.plugin.distribution import Distribution

        controller.distribution = Distribution(config, controller, nodes)
        config.pluginmanager.register(controller.distribution, "spiral-distribution")
    return ActiveParts(collection, execution, controller.close)


class Controller:
    """Hooks of the process the user started. execution: runs items unless they are distributed to workers."""

    execution: Execution
    distribution: Distribution | None = None
    # Bundled items that this session runs, once they are collected.
    planned: int = 0
    # Their units, as far as they are known by name.
    units: Sequence[Unit] = ()

    def __init__(self, config: pytest.Config, run: RunController, nodes: Sequence[str]) -> None:
        self.run = run
        self.progress = Progress(config, self._look, self._progress_file)
        self._time_left: TimeLeft | None = None
        # When items could be started, in seconds since 1970, and how many replies progress knows of.
        self._began = 0.0
        self._replies = 0
        # Which models are paused in this process.
        self.pauses: Callable[[], Sequence[str]] = tuple
        self._config = config
        self._nodes = nodes
        self._ready = False
        self._finishing = False
        self._closed = False
        # The run, or with --plan what it would take; and the block that ends the output.
        self._summary: Sequence[Line] | None = None
        self._decision: Sequence[Line] | None = None
        # Items whose instruments failed, by node id.
        self._instrument_failures: set[str] = set()
        # Failures that are the user's own tests or a model's, not the instrument's.
        self._failures = 0
        # Why nothing more could be stored, in this process or a worker.
        self._store_failure: str | None = None
        self._terminated = False
        with suppress(ValueError):
            # A terminated run still writes its report. In another thread than the main one (`ValueError`), and where
            # somebody else handles the signal, the embedding program keeps its own handling.
            if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._terminate)
                config.add_cleanup(_release_sigterm)

    def close(self) -> None:
        """Stop background work, and release what the run holds; once, even if that fails."""
        if self._closed:
            return
        self._closed = True
        try:
            self.execution.close()
        finally:
            self.run.close()

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        if self._finishing:
            # The run is over: its report is worth the seconds that it takes.
            return
        self._terminated = True
        if self._ready:
            # With an exit status of its own pytest would leave out the summary.
            pytest.exit("terminated")
        # Models are asked in this thread: to their event loop, another exception is the failure of one call.
        raise KeyboardInterrupt

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Prepare the run before workers start and before anything is collected."""
        if self._config.getoption("collectonly") or self.run.plan.settings.plan:
            return
        try:
            with usage_errors():
                self.run.prepare()
                self._check_models()
                if any(node.startswith(SUITE_FILES["spiral"]) for node in self._nodes):
                    self.run.judge_anchors()
        except KeyboardInterrupt:
            if self._terminated:
                pytest.exit("terminated before the first item", TERMINATED)
            raise
        self._began, self._ready = time.time(), True

    def _check_models(self) -> None:
        """Ends with the command that starts the run again where a model cannot be used as it is configured."""
        try:
            self.run.check_models()
        except ConfigError as error:
            command = self.run.mended_command(self._config.invocation_params.args, error)
            raise ConfigError(f"{error}\nThen run:\n    {command}") from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """With --plan: estimate what was collected instead of running it."""
        self.units = runnable_units(session.items)
        self.planned = len(self.units)
        if not self.run.plan.settings.plan or self._config.getoption("collectonly") or session.testsfailed:
            return None
        # Only a plan loads what it needs.
        from pytest_spiral.run.estimate import estimate

        with usage_errors():
            self._summary = list(plan_lines(estimate(self.run.plan, self.run.content, self.units)))
        return True

    def pytest_report_header(self) -> list[str]:
        """Name the run, its models, and its id for resuming."""
        return header_lines(self.run.plan, self._config.getoption("dist", "no"), self.run.measured.learned)

    def _progress_file(self) -> Path:
        """Where progress is written. Raises `LostStoreError` where something else is in the place of the run."""
        self.run.store.check_file(now=True)
        return Path(self.run.plan.run_dir) / PROGRESS_FILE

    def _look(self) -> Snapshot:
        """How far the run is."""
        plan, content, answers = self.run.plan, self.run.content, self.run.store.answers(self._replies)
        self._replies += len(answers)
        measured, runner = self.run.measured, self.execution.runner_in_use
        if self.units:
            if self._time_left is None:
                self._time_left = TimeLeft(plan, content, self.units, self._began)
                answers = self.run.store.answers(0)
            self._time_left.add(answers)
        ended = {*measured.items, *measured.conversations, *(runner.engine.untold() if runner else ())}
        counts = len(ended), self.planned or None, self._replies
        return snapshot(plan, self.run.store, self._time_left, time.time(), ended, counts, self.pauses())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Leave the terminal to the others."""
        self.progress.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather the results, and tell failures of tests from failures of instruments."""
        self.progress.clear()
        self.store_replies(report.__dict__.get("spiral_replies"))
        message = take_message(report)
        if message is None:
            # A worker that died at a bundled item says nothing about the model; the item is missing.
            crashed = report.when not in ("setup", "call", "teardown")
            of_instrument = crashed and report.nodeid.partition("::")[0] in SUITE_FILES.values()
        else:
            of_instrument = message.failure is not None
            if of_instrument:
                self._instrument_failures.add(report.nodeid)
            if (result := message.item or message.conversation) is not None:
                self.run.measured.add(result)
            else:
                self._store_failure = message.failure
        self._failures += report.failed and not of_instrument

    def store_replies(self, packed: str | None) -> None:
        """Store the replies of a worker that has no access to the store."""
        if packed is not None:
            unpack(packed, self.run.store)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be collected is a failure of the user's own."""
        self._failures += report.failed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        """Write the report and decide the exit code, whatever others add to it."""
        self.progress.clear()
        self._attempt(session, "report", lambda: self._finish(session, exitstatus))
        decided = int(session.exitstatus)
        yield
        # After everything that pytest says itself.
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self._decision is not None:
            write_section(reporter, self._decision, "spiral: decision")
        # Some plugins (syrupy) add the status they were given, in which a failed instrument is a failed test.
        if session.exitstatus == decided | exitstatus:
            session.exitstatus = decided
        # Later, an error would end the process with another exit code.
        self._attempt(session, "end of the run", self.close)

    def _attempt(self, session: pytest.Session, part: str, make: Callable[[], None]) -> None:
        """What must not end the session with an error: pytest would exit with 1, as if a test had failed."""
        parts = Parts()
        with tracebacks(self._config.getoption("fulltrace", default=False)):
            parts.attempt(part, make)
        for failed in parts.failed:
            kept = f"every reply is kept in {self.run.plan.store_path}; resume with --run-id {self.run.plan.run_id}"
            write_error(self._config, f"{part}: internal error, {failed.detail}; {kept}")
            session.exitstatus = exit_code(int(session.exitstatus), None, tests_failed=False, parts_failed=True)

    def _finish(self, session: pytest.Session, exitstatus: int) -> None:
        # An interrupted run must not go on paying for answers while its report is made.
        self.execution.stop()
        if self._terminated and exitstatus == pytest.ExitCode.INTERRUPTED:
            exitstatus = session.exitstatus = TERMINATED
        measured = self.run.measured
        runner = self.execution.runner_in_use
        for result in runner.engine.finished() if runner else ():
            measured.add(result)
        if not self._ready or not (self._nodes or measured.items or measured.conversations):
            return
        self._finishing = True
        with suppress(UserError):
            self.progress.record()
        # A run of which nothing was selected was not interrupted.
        ended = exitstatus in (PASSED, FAILED, NOTHING)
        # -x and --maxfail stop early without another exit status.
        complete = ended and not (session.shouldfail or session.shouldstop)
        if complete and self.distribution is not None and (lost := self.distribution.lost()):
            write_error(self._config, f"{len(lost)} items were given to workers and never reported, first {lost[0]}")
            # Bundled ones are missing from the report, which decides what that means.
            self._failures += sum(name.partition("::")[0] not in SUITE_FILES.values() for name in lost)
        failure, code = self._store_failure, pytest.ExitCode.USAGE_ERROR
        try:
            # What took its place may be another run's, so nothing is written there.
            self.run.store.check_file(now=True)
            argv = list(self._config.invocation_params.args)
            report = self._write_report(self.run.results(argv, datetime.now(UTC), complete=complete))
            verdict = self._verdict(report)
            # A shard of a short list may have nothing to run, and lacks nothing then.
            status = PASSED if verdict is None and exitstatus == NOTHING else int(exitstatus)
            session.exitstatus = exit_code(status, verdict, self._failures > 0, bool(report.failed_parts))
        except UserError as error:
            failure = str(error)
            if isinstance(error, LostStoreError):
                code = pytest.ExitCode.INTERNAL_ERROR
        if failure is not None:
            write_error(self._config, failure)
            session.exitstatus = code

    def _write_report(self, results: RunResults) -> Report:
        """Write the report, with what was measured on disk before anything is computed from it."""
        folder = Path(self.run.plan.run_dir)
        write_results(without_statistics(results), folder)
        report = write_report(evaluate(results), folder, os.environ.get("GITHUB_STEP_SUMMARY"))
        parts = Parts()
        parts.attempt("kept floor", keep_floor, self.run.plan, report)
        parts.attempt("JUnit XML", lambda: add_junit_properties(self._config, suite_properties(report)))
        self._summary = parts.attempt("terminal", summary_lines, report, os.path.relpath(folder))
        lost = (*report.failed_parts, *parts.failed)
        self._decision = parts.attempt("terminal", decision_lines, report.model_copy(update={"failed_parts": lost}))
        report = report.model_copy(update={"failed_parts": (*report.failed_parts, *parts.failed)})
        if self._decision is None:
            self._decision = list(failed_lines(report.failed_parts))
        return report

    def _verdict(self, report: Report) -> Verdict | None:
        """The verdict that counts. A shard that is complete has none but a failure: the rest is in other shards."""
        shard = self.run.plan.settings.shard_number
        if shard is None or report.verdict == "fail":
            return report.verdict
        units = shard_of(all_units(self.run.plan, self.run.content), shard)
        results = [self.run.measured.of(unit) for unit in units]
        measured = (Status.MEASURED, Status.MODEL_FAILED)
        missing = sum(result is None or result.status not in measured for result in results)
        return report.verdict if is_beyond_limit(missing, len(units)) else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """One block per model, or the plan. What failed for the same reason 75 times is not shown 75 times by pytest:
        the block that ends the run counts it by its cause, and -v shows all."""
        errors = terminalreporter.stats.get("error", [])
        hidden = self._decision is not None and terminalreporter.verbosity <= 0
        if hidden and errors:
            others = [each for each in errors if each.nodeid not in self._instrument_failures]
            terminalreporter.stats["error"] = others
        yield
        if hidden and errors:
            terminalreporter.stats["error"] = errors
        if self._summary is not None:
            write_section(terminalreporter, self._summary)


def _release_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
