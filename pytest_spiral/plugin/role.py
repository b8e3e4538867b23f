"""Who does what: the process the user started leads the run, it or its xdist workers run the items."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import pytest

from pytest_spiral.errors import StoreError
from pytest_spiral.models.environment import load_environment
from pytest_spiral.plugin.items import ConversationResult, InstrumentFailure, ScenarioResult, suite_modules
from pytest_spiral.report.junit import item_properties
from pytest_spiral.report.lines import plain
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import RunPlan, category_of, conversation_units, scenario_units, share_of
from pytest_spiral.run.runner import EvaluatedModel, Runner, Unit
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, conversation_to_json
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.results import ITEM_RESULT, item_result
from pytest_spiral.tempaffect.unit import ScenarioUnit

__all__ = ["PROGRESS", "Role", "runnable_units", "take_role"]

RESULT = pytest.StashKey[str]()
TIMES = pytest.StashKey[tuple[float, float]]()
PROGRESS: Any = "progress"
"""What a report is of that says how far a worker is, where others say setup, call or teardown."""


def take_role(config: pytest.Config, settings: Settings) -> Role:
    """Register the role of this process. Raises `pytest.UsageError` for whatever the user can mend."""
    # Imported here: both are built on this module, and a process plays one of them.
    if hasattr(config, "workerinput"):
        from pytest_spiral.plugin.worker import WorkerRole

        worker = WorkerRole(config)
        config.pluginmanager.register(worker, "spiral-role")
        return worker
    from pytest_spiral.plugin.controller import LeadRole

    lead = LeadRole(config, settings)
    config.pluginmanager.register(lead, "spiral-role")
    if lead.distributes:
        from pytest_spiral.plugin.distribution import XdistLead

        lead.workers = XdistLead(lead)
        config.pluginmanager.register(lead.workers, "spiral-xdist")
    return lead


class Role:
    """What leading and working processes have in common: collecting bundled items and running them."""

    # How often somebody who waits hears something: a person at a terminal, the log of a CI job.
    progress_seconds = 5.0
    log_seconds = 30.0

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
        share = self.settings.shard_number
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
        units = runnable_units(self._prefetchable(item, nextitem))
        # The longest first: a conversation takes as long as all its turns.
        for unit in sorted(units, key=lambda unit: isinstance(unit, ScenarioUnit)):
            self.runner.submit(unit)

    def _prefetchable(self, item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        raise NotImplementedError

    def scenario_result(self, item: pytest.Item, unit: ScenarioUnit) -> ScenarioResult:
        """Wait for a unit. Raises `InstrumentFailure` where nothing was measured."""
        found: Item = self._result(item, unit)
        failure = str(found.reason) if found.status is Status.INSTRUMENT_FAILED else None
        payload = ITEM_RESULT.dump_python(item_result(found), mode="json")
        item.user_properties += item_properties(found)
        self._send_home(item, "tempaffect", payload, failure)
        if found.status is Status.NOT_RUN:
            pytest.skip(plain(found.reason.detail if found.reason else ""))
        accepted = not self.settings.strict_items or (found.score is not None and found.score.useful_bounded)
        return ScenarioResult(found, accepted)

    def conversation_result(self, item: pytest.Item, unit: ConversationUnit) -> ConversationResult:
        """Wait for a conversation. Raises `InstrumentFailure` where it could not be held or not be judged."""
        found: Conversation = self._result(item, unit)
        harm = self.content.spiral.protocol.harm
        severe = [f for f in found.findings if f.behaviour == harm and f.strength == 3 and f.evidence != "unlocated"]
        refused = severe if self.settings.strict_items else ()
        item.user_properties += item_properties(found)
        # What was found stands, whatever else is missing.
        self._send_home(item, "spiral", conversation_to_json(found), None if refused else _lost(found))
        if found.status is Status.NOT_RUN:
            pytest.skip(plain(str(found.reason)))
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
            if report.failed and (failure := json.loads(payload)["failure"]) is not None:
                # The sentence says it all; frames of ours would bury it.
                report.longrepr = f"InstrumentFailure: {plain(failure)}"
        return report


def _lost(conversation: Conversation) -> str | None:
    """What the instruments failed to deliver, None where it is all there."""
    if conversation.status is Status.INSTRUMENT_FAILED:
        return str(conversation.reason)
    judgements: list[ChunkJudgement | FinalJudgement] = [*conversation.judgements, *conversation.finals]
    failed = [judgement for judgement in judgements if judgement.status is not Status.MEASURED]
    if not failed:
        return None
    first = f"{failed[0].judge}: {failed[0].reason}"
    return f"{len(failed)} of {len(judgements)} judgements missing; the first, {first}"


def _marks(*names: str) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, name) for name in names]


def runnable_units(items: Sequence[pytest.Item]) -> list[Unit]:
    """The units of those bundled items that are not skipped."""
    return [unit for item in items if (unit := _unit_of(item)) is not None and not _is_skipped(item)]


def _unit_of(item: pytest.Item) -> Unit | None:
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec else {}
    unit = params.get("scenario_result") or params.get("conversation_result")
    return unit if isinstance(unit, ScenarioUnit | ConversationUnit) else None


def _is_skipped(item: pytest.Item) -> bool:
    from _pytest.skipping import evaluate_skip_marks

    return evaluate_skip_marks(item) is not None
