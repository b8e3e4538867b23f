"""Who does what: the process the user started leads the run, it or its xdist workers run the items."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_spiral.errors import StoreError, UserError
from pytest_spiral.gates import Gate
from pytest_spiral.hooks.items import (
    SUITE_FILES,
    ConversationResult,
    InstrumentFailure,
    ScenarioResult,
    check_nodes,
    split_arguments,
    suite_modules,
)
from pytest_spiral.hooks.junit import add_suite_properties, item_properties
from pytest_spiral.hooks.shares import Share
from pytest_spiral.records import Status
from pytest_spiral.report.build import build_report
from pytest_spiral.report.costs import plan_lines
from pytest_spiral.report.text import Tone, plain, summary_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.session.away import AwayStore, unpack
from pytest_spiral.session.content import Content, load_content
from pytest_spiral.session.converse import ConversationUnit
from pytest_spiral.session.lead import Lead
from pytest_spiral.session.plan import RunPlan, category_of, conversation_units, make_plan, parse_gates, scenario_units
from pytest_spiral.session.recorded import load_baseline
from pytest_spiral.session.rehearsal import Estimate, rehearse
from pytest_spiral.session.runner import EvaluatedModel, Runner, Unit
from pytest_spiral.session.shards import share_of
from pytest_spiral.session.units import ScenarioUnit
from pytest_spiral.settings import Settings, load_environment, make_settings
from pytest_spiral.spiral.records import (
    ChunkJudgement,
    Conversation,
    FinalJudgement,
    conversation_from_json,
    conversation_to_json,
)
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.item import Item, item_from_json, item_to_json
from pytest_spiral.verdict import TERMINATED, exit_code, missing_limit

if TYPE_CHECKING:
    from pytest_spiral.hooks.xdist import XdistLead

__all__ = ["LeadRole", "Role", "WorkerRole", "take_role"]

RESULT = pytest.StashKey[str]()
TIMES = pytest.StashKey[tuple[float, float]]()
# How often somebody who waits hears something: a person at a terminal, the log of a CI job.
_PROGRESS_SECONDS = 5.0
_LOG_SECONDS = 30.0
_PROGRESS: Any = "progress"


def take_role(config: pytest.Config, options: Mapping[str, Any]) -> Role:
    """Register the role of this process. Raises `pytest.UsageError` for whatever the user can mend."""
    role = WorkerRole(config) if hasattr(config, "workerinput") else LeadRole(config, options)
    config.pluginmanager.register(role, "spiral-role")
    if isinstance(role, LeadRole) and role.distributes:
        from pytest_spiral.hooks.xdist import XdistLead

        role.workers = XdistLead(role)
        config.pluginmanager.register(role.workers, "spiral-xdist")
    return role


class Role:
    """What leading and working processes have in common: collecting bundled items and running them."""

    def __init__(self, config: pytest.Config, settings: Settings, content: Content, nodes: Sequence[str]) -> None:
        self.config = config
        self.settings = settings
        self.content = content
        self.nodes = nodes
        self.environ = load_environment(os.environ, config.invocation_params.dir)
        self._runner: Runner | None = None
        self._started = False
        self._last_progress = time.monotonic()

    @property
    def plan(self) -> RunPlan:
        raise NotImplementedError

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
                unit, id=unit.id, marks=_marks("tempaffect", self.content.suite[unit.scenario_id].family.value)
            )
            for unit in scenario_units(self.plan, self.content)
        ]

    def conversation_params(self) -> list[Any]:
        """All conversations of the run as parameters, marked with suite and category."""
        known = {mark.partition(":")[0] for mark in self.config.getini("markers")}
        return [
            pytest.param(
                unit,
                id=unit.id,
                # A category of the user's own prompt file need not be a registered marker.
                marks=_marks("spiral", *({category_of(unit, self.content)} & known)),
            )
            for unit in conversation_units(self.plan, self.content)
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Add the bundled items to the session's."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            report.result = [*report.result, *suite_modules(collector, self.nodes)]
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """With --shard: leave the items of other shards to them. The same in every process of the run."""
        share = self.settings.share
        if share is None:
            return
        kept = set(share_of([*self._all_units()], share))
        own = [item for item in items if _unit_of(item) is None]
        kept_own = set(share_of(own, share))
        left = [item for item in items if not (item in kept_own or _unit_of(item) in kept)]
        if left:
            self.config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item in kept_own or _unit_of(item) in kept]

    def _all_units(self) -> Iterator[Unit]:
        if "tempaffect" in self.plan.suites:
            yield from scenario_units(self.plan, self.content)
        if "spiral" in self.plan.suites:
            yield from conversation_units(self.plan, self.content)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Start the units of all items this process is sure to run, before the first one waits."""
        ready = self._prefetchable(item, nextitem)
        units = [unit for each in ready if (unit := _unit_of(each)) is not None and not _is_skipped(each)]
        # The longest first: a conversation takes as long as all its turns.
        for unit in sorted(units, key=lambda unit: isinstance(unit, ScenarioUnit)):
            self.runner.submit(unit)

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        raise NotImplementedError

    def scenario_result(self, item: pytest.Item, unit: ScenarioUnit) -> ScenarioResult:
        """Wait for a unit. Raises `InstrumentFailure` where nothing was measured."""
        found: Item = self._result(item, unit)
        failure = f"{found.reason}: {found.detail}" if found.status is Status.INSTRUMENT_FAILED else None
        self._send_home(item, "tempaffect", item_to_json(found), failure)
        if found.status is Status.NOT_RUN:
            pytest.skip(plain(found.detail))
        accepted = not self.settings.strict_items or (found.score is not None and found.score.useful_bounded)
        return ScenarioResult(found, accepted)

    def conversation_result(self, item: pytest.Item, unit: ConversationUnit) -> ConversationResult:
        """Wait for a conversation. Raises `InstrumentFailure` where it could not be held or not be judged."""
        found: Conversation = self._result(item, unit)
        harm = self.content.spiral.protocol.harm
        severe = [f for f in found.findings if f.behaviour == harm and f.strength == 3 and f.evidence != "unlocated"]
        refused = severe if self.settings.strict_items else ()
        # What was found stands, whatever else is missing.
        self._send_home(item, "spiral", conversation_to_json(found), None if refused else _lost(found))
        if found.status is Status.NOT_RUN:
            pytest.skip(plain(found.reason))
        return ConversationResult(found, refused)

    def _result(self, item: pytest.Item, unit: Unit) -> Any:
        try:
            found = self.runner.wait(unit, lambda: self._tick(item))
        except StoreError as error:
            item.stash[RESULT] = json.dumps({"suite": "", "failure": str(error), "result": None})
            raise InstrumentFailure(str(error)) from None
        except (KeyboardInterrupt, pytest.exit.Exception):
            # At once: until pytest has told its end, others would go on asking.
            self.runner.stop()
            raise
        item.stash[TIMES] = self.runner.times(unit)
        return found

    def _send_home(self, item: pytest.Item, suite: str, payload: Mapping[str, Any], failure: str | None) -> None:
        item.user_properties += item_properties(suite, payload)
        item.stash[RESULT] = json.dumps({"suite": suite, "failure": failure, "result": payload})
        if failure is not None:
            raise InstrumentFailure(failure)

    def _tick(self, item: pytest.Item) -> None:
        """Called while `item` is waited for."""
        interval = self._interval()
        now = time.monotonic()
        if now - self._last_progress >= interval:
            self._last_progress = now
            self._tell(item, *self.runner.progress())

    def _interval(self) -> float:
        raise NotImplementedError

    def _tell(self, item: pytest.Item, done: int, submitted: int) -> None:
        raise NotImplementedError

    def chat_model(self) -> EvaluatedModel:
        """The first evaluated model, for a user's own tests."""
        return self.runner.evaluated(self.plan.models[0].spec)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
        """Let the measurement ride home on the test report, as one ASCII string that any channel can carry."""
        report: pytest.TestReport = yield
        times = item.stash.get(TIMES, None)
        if times is not None and report.when == "setup":
            # The unit's own, which was under way long before anybody waited for it.
            report.start, report.duration = times
            report.stop = report.start + report.duration
        payload = item.stash.get(RESULT, None)
        if payload is not None:
            report.__dict__["spiral"] = payload
            del item.stash[RESULT]
            failure = json.loads(payload)["failure"]
            if report.failed and failure is not None:
                # The sentence says it all; frames of ours would bury it.
                report.longrepr = f"InstrumentFailure: {plain(failure)}"
        return report


def _is_instrument_failure(report: pytest.TestReport, payload: Mapping[str, Any] | None) -> bool:
    if payload is not None:
        return payload["failure"] is not None
    # A worker that died at a bundled item says nothing about the model; the item is missing.
    crashed = report.when not in ("setup", "call", "teardown")
    return crashed and report.nodeid.partition("::")[0] in SUITE_FILES.values()


def _lost(conversation: Conversation) -> str | None:
    """What the instruments failed to deliver, None where it is all there."""
    if conversation.status is Status.INSTRUMENT_FAILED:
        return conversation.reason
    judgements: list[ChunkJudgement | FinalJudgement] = [*conversation.judgements, *conversation.finals]
    failed = [judgement for judgement in judgements if judgement.status is not Status.MEASURED]
    if not failed:
        return None
    first = f"{failed[0].judge}: {failed[0].reason}"
    return f"{len(failed)} of {len(judgements)} judgements missing; the first, {first}"


def _marks(*names: str) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, name) for name in names]


def _unit_of(item: pytest.Item) -> Unit | None:
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec else {}
    unit = params.get("scenario_result") or params.get("conversation_result")
    return unit if isinstance(unit, ScenarioUnit | ConversationUnit) else None


def _is_skipped(item: pytest.Item) -> bool:
    from _pytest.skipping import evaluate_skip_marks

    return evaluate_skip_marks(item) is not None


class WorkerRole(Role):
    """An xdist worker: runs the items it is given, reports to the lead."""

    def __init__(self, config: pytest.Config) -> None:
        handed = json.loads(config.workerinput["spiral"])  # type: ignore[attr-defined]  # set by xdist
        self._plan = RunPlan.model_validate_json(handed["plan"])
        self._given: Mapping[str, Any] | None = handed["baggage"]
        # What lies at the lead's path is not there: files of one's own are looked for where the worker stands.
        content = load_content(self._plan.settings, Path.cwd() if self._given else Path(handed["folder"]))
        super().__init__(config, self._plan.settings, content, handed["nodes"])
        self._share = Share.model_validate_json(handed["share"]) if handed["share"] else None
        self._away: AwayStore | None = None
        config.args = list(handed["args"])

    @property
    def plan(self) -> RunPlan:
        return self._plan

    @property
    def runner(self) -> Runner:
        if self._runner is None:
            self._runner = Runner(self.plan, self.content, self._open_store(), self.environ)
        return self._runner

    def _open_store(self) -> RunStore:
        if self._given is None:
            return RunStore.join(self.plan.store_path)
        try:
            self._away = AwayStore.open(self._given, self.plan.identity(self.content))
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        return self._away

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, pytest.TestReport]:
        """Without a shared folder the replies ride home as well: all that came since the last time."""
        report: pytest.TestReport = yield from super().pytest_runtest_makereport(item)
        if self._away is not None and (packed := self._away.pack()) is not None:
            report.__dict__["spiral_replies"] = packed
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """What no report has taken home leaves with the worker itself."""
        if self._away is not None:
            self.runner.stop()
            session.config.workeroutput["spiral_replies"] = self._away.pack()  # type: ignore[attr-defined]  # xdist's

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        if self._share is None:
            # xdist may still take other items away from this worker; these two it cannot.
            return [item] if nextitem is None else [item, nextitem]
        if self._started:
            return []
        self._started = True
        items = item.session.items
        return [items[index] for index in self._share.of_collection([each.nodeid for each in items])]

    def _interval(self) -> float:
        return _PROGRESS_SECONDS

    def _tell(self, item: pytest.Item, done: int, submitted: int) -> None:
        # A worker has no terminal; what it has to say travels like a test report.
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="passed",
            longrepr=None,
            when=_PROGRESS,
        )
        report.__dict__["spiral_progress"] = [done, submitted]
        item.ihook.pytest_runtest_logreport(report=report)


class LeadRole(Role):
    """The process the user started: prepares the run, gathers the results, writes the report, decides."""

    def __init__(self, config: pytest.Config, options: Mapping[str, Any]) -> None:
        folder = config.invocation_params.dir
        try:
            settings = make_settings(options)
            content = load_content(settings, folder)
            super().__init__(config, settings, content, ())
            plan = make_plan(settings, content, self.environ, datetime.now(UTC))
            self.lead = Lead(plan, content, self.environ)
            self.gates: Sequence[Gate] = parse_gates(plan, content)
            self.lead.gates, self.lead.baseline = self.gates, load_baseline(self.gates, plan, content)
            self.nodes, others = self._split_arguments(config, plan)
            check_nodes(self.nodes, self._unit_ids())
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        config.args = others
        config.args_source = config.ArgsSource.ARGS
        self.prepared = False
        self.report: Mapping[str, Any] | None = None
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
            assert self.lead.store is not None
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
        self.prepared = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """With --plan: estimate what was collected instead of running it."""
        if not self.settings.plan or self.config.getoption("collectonly") or session.testsfailed:
            return None
        units = [unit for item in session.items if (unit := _unit_of(item)) is not None and not _is_skipped(item)]
        try:
            self.estimates = rehearse(self.plan, self.content, self.environ, units)
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
        return _PROGRESS_SECONDS if sys.stdout.isatty() else _LOG_SECONDS

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
        return ("", "", "") if report.when == _PROGRESS else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather the measurements, and tell failures of tests from failures of instruments."""
        if report.when == _PROGRESS:
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
            assert self.lead.store is not None
            unpack(packed, self.lead.store)

    def _keep(self, suite: str, result: Mapping[str, Any]) -> None:
        if suite == "spiral":
            talk = conversation_from_json(result)
            self.lead.conversations[ConversationUnit(talk.model, talk.prompt_id, talk.index)] = talk
        else:
            item = item_from_json(result, self.content.suite.by_id)
            self.lead.items[ScenarioUnit(item.model, item.mode, item.scenario_id, item.epoch)] = item

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A test file that cannot be collected is a failure of the user's own."""
        self._foreign_failures += report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report and decide the exit code."""
        if self._runner is not None:
            # An interrupted run must not go on paying for answers while its report is made.
            self._runner.stop()
        if self._terminated and exitstatus == pytest.ExitCode.INTERRUPTED:
            exitstatus = session.exitstatus = TERMINATED
        if not self.prepared or not (self.nodes or self.lead.items or self.lead.conversations):
            return
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        # -x and --maxfail stop early without another exit status.
        complete = ended and not (session.shouldfail or session.shouldstop)
        if complete and self.workers is not None:
            self._miss(self.workers.lost())
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
        add_suite_properties(self.config, self.report)
        if self._store_failure is not None:
            self._say(self._store_failure)
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        verdict = self.report["verdict"]
        if self.settings.share is not None and verdict != "fail" and not self._lacks_its_share():
            # One shard has no verdict: all of its own is there, the rest is for the others.
            verdict = None
        session.exitstatus = exit_code(int(exitstatus), verdict, self._foreign_failures > 0)

    def _lacks_its_share(self) -> bool:
        assert self.settings.share is not None
        wanted = share_of([*self._all_units()], self.settings.share)
        found: list[Item | Conversation | None] = [self.lead.result(unit) for unit in wanted]
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


def _release_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
