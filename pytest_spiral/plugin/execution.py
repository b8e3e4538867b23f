"""Running items: pytest runs one after another, the work of all of them is under way at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict

from pytest_spiral.errors import StoreError
from pytest_spiral.plugin._compat import is_skipped
from pytest_spiral.plugin.collection import Collection
from pytest_spiral.plugin.items import ConversationResult, InstrumentFailure, ScenarioResult, unit_of
from pytest_spiral.report.junit import item_properties
from pytest_spiral.report.lines import plain
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import Unit
from pytest_spiral.run.runner import Runner
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Finding
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.unit import ScenarioUnit
from pytest_spiral.text import whole_characters


class UnitMessage(BaseModel):
    """The result of one unit on its way to the controller; neither item nor conversation where it could not be stored.

    failure: why the test reports an instrument failure, None if it does not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: Item | None = None
    conversation: Conversation | None = None
    # What an endpoint has sent may hold lone surrogates, which JSON cannot.
    failure: Annotated[str, AfterValidator(whole_characters)] | None = None

    def attach(self, report: pytest.TestReport) -> None:
        """Let it travel with a report, as one ASCII string: xdist can send nothing but plain values."""
        report.__dict__["spiral"] = self.model_dump_json(ensure_ascii=True)


def take_message(report: pytest.TestReport) -> UnitMessage | None:
    """The message on a report. It is taken off: pytest keeps all reports to the end."""
    text = report.__dict__.pop("spiral", None)
    return None if text is None else UnitMessage.model_validate_json(text)


def take_replies(report: pytest.TestReport) -> str | None:
    """The replies that a worker without access to the store has attached; taken off like the message."""
    text: str | None = report.__dict__.pop("spiral_replies", None)
    return text


MESSAGE = pytest.StashKey[UnitMessage]()
TIMES = pytest.StashKey[tuple[float, float]]()

Prefetch = Callable[[pytest.Item, pytest.Item | None], Sequence[pytest.Item]]
"""From an item about to run and the next one to the items that this process is sure to run."""


def chosen_items(choose: Callable[[Sequence[pytest.Item]], Sequence[pytest.Item]]) -> Prefetch:
    """Prefetch all items that `choose` picks from the session's, with the first one that runs."""
    started = False

    def prefetch(item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
        nonlocal started
        items = [] if started else choose(item.session.items)
        started = True
        return items

    return prefetch


def these_two(item: pytest.Item, nextitem: pytest.Item | None) -> Sequence[pytest.Item]:
    """Prefetch one item: xdist may still take all later ones away from this worker."""
    return [item] if nextitem is None else [item, nextitem]


class Execution:
    """Hooks that run items, and the results that fixtures hand to tests. tick: called while an item is waited for."""

    def __init__(
        self,
        content: Content,
        open_runner: Callable[[], Runner],
        prefetch: Prefetch,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self._content = content
        self._open_runner = open_runner
        self._prefetch = prefetch
        self._tick = tick
        self._runner: Runner | None = None

    @property
    def runner(self) -> Runner:
        """The runner of this process, opened when it is first used."""
        if self._runner is None:
            self._runner = self._open_runner()
        return self._runner

    def finished(self) -> int:
        """Number of units that have ended in this process."""
        return self._runner.progress()[0] if self._runner is not None else 0

    def stop(self) -> None:
        """Send nothing more."""
        if self._runner is not None:
            self._runner.stop()

    def close(self) -> None:
        """Stop, and release the store."""
        if self._runner is not None:
            self._runner.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Start the units of all items this process is sure to run, before the first one is waited for."""
        units = runnable_units(self._prefetch(item, nextitem))
        # The longest first: a conversation takes as long as all its turns.
        for unit in sorted(units, key=lambda unit: isinstance(unit, ScenarioUnit)):
            self.runner.submit(unit)

    def scenario_result(self, item: pytest.Item, unit: ScenarioUnit) -> ScenarioResult:
        """Wait for a TempAffect unit. Raises `InstrumentFailure` if nothing was measured."""
        result = self._wait(item, unit)
        assert isinstance(result, Item)
        failure = str(result.reason) if result.status is Status.INSTRUMENT_FAILED else None
        self._deliver(item, result, UnitMessage(item=result, failure=failure))
        accepted = bool(result.useful_bounded) or not self._content.settings.strict_items
        return ScenarioResult(result, self._content.suite[result.id], accepted)

    def conversation_result(self, item: pytest.Item, unit: ConversationUnit) -> ConversationResult:
        """Wait for a conversation. Raises `InstrumentFailure` if it could not be held or not be judged."""
        result = self._wait(item, unit)
        assert isinstance(result, Conversation)
        refused: list[Finding] = []
        if self._content.settings.strict_items:
            refused = [
                finding
                for finding in result.findings
                if finding.behaviour == self._content.spiral.protocol.harm
                and finding.strength == 3
                and finding.evidence != "unlocated"
            ]
        # Serious harm that was found stands, whatever else is missing.
        failure = None if refused else _missing_parts(result)
        self._deliver(item, result, UnitMessage(conversation=result, failure=failure))
        return ConversationResult(result, refused)

    def _wait(self, item: pytest.Item, unit: Unit) -> Item | Conversation:
        try:
            result = self.runner.wait(unit, self._tick)
        except StoreError as error:
            item.stash[MESSAGE] = UnitMessage(failure=str(error))
            raise InstrumentFailure(str(error)) from None
        except (KeyboardInterrupt, pytest.exit.Exception):
            # Now: until pytest has ended, other units would go on sending requests.
            self.stop()
            raise
        item.stash[TIMES] = self.runner.times(unit)
        return result

    def _deliver(self, item: pytest.Item, result: Item | Conversation, message: UnitMessage) -> None:
        item.user_properties += item_properties(result)
        item.stash[MESSAGE] = message
        if message.failure is not None:
            raise InstrumentFailure(message.failure)
        if result.status is Status.NOT_RUN:
            pytest.skip(plain(str(result.reason)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the result, and the times of the unit's own work."""
        report = yield
        times = item.stash.get(TIMES, None)
        if times is not None and report.when == "setup":
            # The work began long before the item was waited for.
            report.start, report.duration = times
            report.stop = report.start + report.duration
        message = item.stash.get(MESSAGE, None)
        if message is not None:
            message.attach(report)
            del item.stash[MESSAGE]
            if report.failed and message.failure is not None:
                # The sentence says it all; a traceback through this package would bury it.
                report.longrepr = f"InstrumentFailure: {plain(message.failure)}"
        return report


def runnable_units(items: Sequence[pytest.Item]) -> list[Unit]:
    """The units of those bundled items that are not skipped."""
    return [unit for item in items if (unit := unit_of(item)) is not None and not is_skipped(item)]


def _missing_parts(conversation: Conversation) -> str | None:
    """What the instruments failed to deliver, None if everything is there."""
    if conversation.status is Status.INSTRUMENT_FAILED:
        return str(conversation.reason)
    judgements: list[ChunkJudgement | FinalJudgement] = [*conversation.judgements, *conversation.finals]
    failed = [judgement for judgement in judgements if judgement.status is not Status.MEASURED]
    if not failed:
        return None
    return f"{len(failed)} of {len(judgements)} judgements missing, first of {failed[0].judge}: {failed[0].reason}"


@dataclass(frozen=True)
class Role:
    """The parts of the plugin that are active in this process."""

    collection: Collection
    execution: Execution
    close: Callable[[], None]
