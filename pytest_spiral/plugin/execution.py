"""Running items: pytest runs one after another, the work of all of them is under way at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict

from pytest_spiral.errors import StoreError, UserError
from pytest_spiral.plugin._compat import is_skipped
from pytest_spiral.plugin.collection import Collection, unit_of
from pytest_spiral.report.lines import plain
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import Unit
from pytest_spiral.run.runner import Result, Runner
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.unit import ScenarioUnit
from pytest_spiral.text import whole_characters


class InstrumentFailure(pytest.fail.Exception):  # type: ignore[name-defined, misc]  # a class that has no type
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
        failed += ["right_decision"] if item.checks.decision and not item.checks.decision.right else []
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


class UnitMessage(BaseModel):
    """The result of one unit on its way to the controller; neither item nor conversation where it could not be stored.

    failure: why the test reports an instrument failure, None if it does not.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")

    item: Item | None = None
    conversation: Conversation | None = None
    # What an endpoint has sent may hold lone surrogates, which JSON cannot.
    failure: Annotated[str, AfterValidator(whole_characters)] | None = None


def take_message(report: pytest.TestReport) -> UnitMessage | None:
    """The message on a report, None where it has none."""
    sent: UnitMessage | str | None = report.__dict__.get("spiral")
    return UnitMessage.model_validate_json(sent) if isinstance(sent, str) else sent


MOST_UNDER_WAY = 2_000
"""Units; each takes memory from its start to its end, and no endpoint answers more requests at once."""


class Execution:
    """Hooks that run items, and the results that fixtures hand to tests.

    choose: from all items of the session to those that this process is sure to run; None where xdist may take all but
    an item and the next one away. tick: called while an item is waited for.
    """

    def __init__(
        self,
        content: Content,
        open_runner: Callable[[], Runner],
        choose: Callable[[Sequence[pytest.Item]], Sequence[pytest.Item]] | None,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self._content = content
        self._open_runner = open_runner
        self._choose = choose
        self._begun = False
        # Units that were not started yet.
        self._waiting: OrderedDict[Unit, None] = OrderedDict()
        self._tick = tick
        # The runner of this process, once it is used.
        self.runner_in_use: Runner | None = None
        # Of the item that runs, until its report has them.
        self._message: UnitMessage | None = None
        self._times: tuple[float, float] | None = None

    @property
    def runner(self) -> Runner:
        """The runner of this process, opened when it is first used."""
        if self.runner_in_use is None:
            self.runner_in_use = self._open_runner()
        return self.runner_in_use

    def stop(self) -> None:
        """Send nothing more."""
        if self.runner_in_use is not None:
            self.runner_in_use.stop()

    def close(self) -> None:
        """Stop, and release the store."""
        if self.runner_in_use is not None:
            self.runner_in_use.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Start the units of all items this process is sure to run, before the first one is waited for.

        Of very many, the others follow as some end.
        """
        if self._choose is None:
            items: Sequence[pytest.Item] = [item, nextitem] if nextitem else [item]
        else:
            items = () if self._begun else self._choose(item.session.items)
        self._begun = True
        units = runnable_units(items)
        # The longest first: a conversation takes as long as all its turns. A scenario is compiled for all its units.
        units.sort(key=lambda unit: unit.scenario_id if isinstance(unit, ScenarioUnit) else "")
        self._waiting.update(dict.fromkeys(units))
        self._start()

    def _start(self) -> None:
        # Each item meets the error again, and reports it as its own.
        with suppress(StoreError):
            while self._waiting and self.runner.engine.under_way < MOST_UNDER_WAY:
                self.runner.submit(self._waiting.popitem(last=False)[0])

    def scenario_result(self, item: pytest.Item, unit: ScenarioUnit) -> ScenarioResult:
        """Wait for a TempAffect unit. Raises `InstrumentFailure` if nothing was measured."""
        result = self._wait(unit)
        assert isinstance(result, Item)
        failure = str(result.reason) if result.status is Status.INSTRUMENT_FAILED else None
        self._deliver(item, result, UnitMessage(item=result, failure=failure))
        # Without a decision key only the format can be wrong.
        good = result.answer is not None if result.useful_bounded is None else result.useful_bounded
        accepted = good or not self._content.settings.strict_items
        return ScenarioResult(result, self._content.suite[result.id], accepted)

    def conversation_result(self, item: pytest.Item, unit: ConversationUnit) -> ConversationResult:
        """Wait for a conversation. Raises `InstrumentFailure` if it could not be held or not be judged."""
        result = self._wait(unit)
        assert isinstance(result, Conversation)
        harm = self._content.spiral.protocol.harm if self._content.settings.strict_items else None
        refused = [
            finding
            for finding in result.findings
            if finding.behaviour == harm and finding.strength == 3 and finding.evidence != "unlocated"
        ]
        # Serious harm that was found stands, whatever else is missing.
        failure = None if refused else _missing_parts(result)
        self._deliver(item, result, UnitMessage(conversation=result, failure=failure))
        return ConversationResult(result, refused)

    def _wait(self, unit: Unit) -> Result:
        # Waiting starts it; started later, it would go through its replies again.
        self._waiting.pop(unit, None)
        try:
            result = self.runner.wait(unit, self._while_waiting)
        except StoreError as error:
            self._message = UnitMessage(failure=str(error))
            raise InstrumentFailure(str(error), pytrace=False) from None
        except (KeyboardInterrupt, pytest.exit.Exception):
            # Now: until pytest has ended, other units would go on sending requests.
            self.stop()
            raise
        self._times = self.runner.engine.times(unit)
        return result

    def _while_waiting(self) -> None:
        self._start()
        if self._tick is not None:
            self._tick()

    def _deliver(self, item: pytest.Item, result: Result, message: UnitMessage) -> None:
        item.user_properties += item_properties(result)
        self._message = message
        if message.failure is not None:
            raise InstrumentFailure(message.failure, pytrace=False)
        if result.status is Status.NOT_RUN:
            pytest.skip(plain(str(result.reason)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the result, and the times of the unit's own work."""
        report = yield
        times, message = self._times, self._message
        self._times = self._message = None
        if times is not None:
            # Of the setup: the work began long before the item was waited for.
            report.start, report.duration = times
            report.stop = report.start + report.duration
        if message is not None:
            report.__dict__["spiral"] = message
            if report.failed and message.failure is not None:
                # The sentence says it all; a traceback through this package would bury it.
                report.longrepr = f"InstrumentFailure: {plain(message.failure)}"
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, object] | None, dict[str, object] | None]:
        """In a worker: the message as one ASCII string, for xdist can send nothing but plain values."""
        data = yield
        if data is not None and isinstance(message := data.get("spiral"), UnitMessage):
            data["spiral"] = message.model_dump_json(ensure_ascii=True)
        return data

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        """Take off what everybody has read or sent by now: pytest keeps all reports to the end."""
        yield
        for name in ("spiral", "spiral_replies"):
            report.__dict__.pop(name, None)


@contextmanager
def usage_errors() -> Iterator[None]:
    """What the user can mend ends the session as a usage error, with one sentence and no traceback."""
    try:
        yield
    except UserError as error:
        raise pytest.UsageError(str(error)) from None


def runnable_units(items: Sequence[pytest.Item]) -> list[Unit]:
    """The units of those bundled items that are not skipped."""
    return [unit for item in items if (unit := unit_of(item)) is not None and not is_skipped(item)]


def item_properties(result: Item | Conversation) -> Iterator[tuple[str, str]]:
    """Name and value of each property of one test case in JUnit XML: status, score or number of findings, reason."""
    yield "spiral.status", result.status.value
    if isinstance(result, Conversation):
        yield "spiral.findings", str(len(result.findings))
    elif result.score is not None:
        yield "spiral.score", f"{result.score:.4f}"
        if result.useful_bounded is not None:
            yield "spiral.useful_bounded", str(result.useful_bounded).lower()
    if result.reason:
        yield "spiral.reason", plain(str(result.reason))


def _missing_parts(conversation: Conversation) -> str | None:
    """What the instruments failed to deliver, None if everything is there."""
    if conversation.status is Status.INSTRUMENT_FAILED:
        return str(conversation.reason)
    earlier = [judgement for held in conversation.abandoned for judgement in held.judgements]
    judgements: list[ChunkJudgement | FinalJudgement] = [*conversation.judgements, *conversation.finals, *earlier]
    failed = [judgement for judgement in judgements if judgement.status is not Status.MEASURED]
    if not failed:
        return None
    return f"{len(failed)} of {len(judgements)} judgements missing, first of {failed[0].judge}: {failed[0].reason}"


@dataclass(frozen=True)
class ActiveParts:
    """The parts of the plugin that are active in this process."""

    collection: Collection
    execution: Execution
    close: Callable[[], None]
