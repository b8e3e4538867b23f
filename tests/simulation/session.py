"""One session of a simulated run, from its preparation to its report or its death."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.errors import StoreError, UserError
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.plugin.execution import UnitMessage
from pytest_spiral.plugin.scheduler import WorkerItems
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.plan import RunPlan, Unit, all_units, make_plan
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.store import RunStore, StoredExchange
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.unit import ScenarioUnit
from tests.simulation.disk import DiskFault, Killed
from tests.simulation.shape import Shape, content_of
from tests.simulation.worker import ENVIRON, Worker, is_cause
from tests.simulation.world import Process, Violation, World

__all__ = ["Session"]

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Session:
    """One session of a run: from its preparation to its report, or to its death.

    interrupt_at: step at which the user presses Ctrl-C. stored: what the store has from the start. deaths: after
    how many steps each worker dies. intruder_at: step at which somebody starts the same run a second time.
    reports: whether the report is made. vandal: takes away what the session works on, at the step `vandal_at`.
    max_cost: what may be spent, in USD.
    """

    world: World
    shape: Shape
    interrupt_at: int | None = None
    stored: Sequence[tuple[ChatRequest, ChatReply]] = ()
    report: Mapping[str, Any] | None = None
    failures: list[str] = field(default_factory=list)
    controller: RunController | None = None
    workers: list[Worker] = field(default_factory=list)
    exchanges: Sequence[StoredExchange] = ()
    crashes: int = 0
    deaths: list[int] = field(default_factory=list)
    intruder_at: int | None = None
    reports: bool = True
    vandal: Callable[[Path], str] | None = None
    vandal_at: int = 0
    max_cost: float | None = None

    def play(self, faults: Sequence[DiskFault] = (), dies_at: int | None = None) -> None:
        """Raises `Violation`."""
        w = self.world
        w.server.refuses = self.shape.refuses
        w.most_in_flight, w.max_cost = self.shape.concurrency, self.max_cost
        process = w.start(f"session {w.session}, controller")
        process.disk.faults = list(faults)
        process.dies_at = dies_at
        try:
            with w.inside(process):
                self._play(process)
        except Killed:
            w.kill(process)
        except UserError as error:
            w.note(f"the session ends: {error}")
            self.failures.append(str(error))
        except Violation:
            raise
        except Exception as error:
            if not any(is_cause(raised, error) for raised in process.disk.raised):
                w.fail(f"unexpected {type(error).__name__}: {error}")
            w.note(f"the session ends: {type(error).__name__}: {error}")
            self.failures.append(str(error))
        finally:
            if self.controller is not None:
                with w.inside(process), suppress(Killed):
                    self.controller.close()
            w.end()

    def _play(self, process: Process) -> None:
        w, settings = self.world, self.shape.settings(self.max_cost)
        content = content_of(settings, self.shape, w.folder)
        plan = make_plan(settings, content, ENVIRON, _NOW)
        controller = self.controller = RunController(plan, content, ENVIRON)
        controller.prepare()
        controller.store.keep_all(self.stored)
        controller.check_models()
        plan = controller.plan
        units = all_units(plan, content)
        count = plan.active_workers(self.shape.workers) if self.shape.workers else 0
        if count == 0:
            self.workers.append(Worker(w, self.deliver, process, plan, content, units, lambda: controller.store))
        for rank in range(count):
            share = [units[index] for index in WorkerItems(rank=rank, of=count).indices([u.id for u in units])]
            self._start_worker(plan.model_copy(update={"rank": rank, "workers": count}), content, share)
        w.drive(lambda: self._done() or self._interrupted())
        complete = self._done()
        w.note("all units have ended" if complete else "interrupted")
        w.closing = True
        for worker in self.workers:
            worker.stop()
        if w.lost_at is not None:
            # Ends the session, before anything is reported.
            controller.store.check_file(now=True)
            w.fail("the run directory was taken away, and nobody has noticed")
        if self.reports:
            report = evaluate(controller.results(["--model=m"], _NOW, complete=complete))
            self.report = json.loads(report.model_dump_json())
        self.exchanges = controller.store.exchanges()
        self._check_accounts(controller.store)

    def _start_worker(self, plan: RunPlan, content: Content, units: Sequence[Unit]) -> None:
        w = self.world
        assert self.controller is not None
        process = w.start(f"session {w.session}, worker {plan.rank}" + (f" ({self.crashes})" if self.crashes else ""))
        if self.deaths:
            process.dies_at = w.steps + self.deaths.pop()
        join = partial(RunStore.join, plan.store_path, self.controller.store.file)
        self.workers.append(Worker(w, self.deliver, process, plan, content, units, join))

    def _done(self) -> bool:
        return all(worker.ended or worker.replaced for worker in self.workers)

    def _interrupted(self) -> bool:
        for worker in [worker for worker in self.workers if not worker.process.alive and not worker.replaced]:
            worker.replaced = True
            self.crashes += 1
            left = worker.units[worker.delivered :]
            self._start_worker(worker.plan, worker.content, left)
        if self.intruder_at is not None and self.world.steps >= self.intruder_at:
            self.intruder_at = None
            self._intrude()
        if self.vandal is not None and self.world.steps >= self.vandal_at:
            self.world.lost_at, self.world.damaged = self.world.clock.now, True
            self.world.note(self.vandal(self.world.run_dir))
            self.vandal = None
        return self.interrupt_at is not None and self.world.steps >= self.interrupt_at

    def _intrude(self) -> None:
        """The same run is started a second time: it must not come in."""
        w, settings = self.world, self.shape.settings()
        process = w.start(f"session {w.session}, a second controller")
        content = content_of(settings, self.shape, w.folder)
        with w.inside(process):
            second = RunController(make_plan(settings, content, ENVIRON, _NOW), content, ENVIRON)
            try:
                second.prepare()
            except StoreError as error:
                w.note(f"the second controller is refused: {error}")
            else:
                w.fail("a second controller entered the run")
            second.close()
        process.alive = False

    def deliver(self, unit: Unit, text: str) -> None:
        """What the controller does with a test report."""
        message = UnitMessage.model_validate_json(text)
        assert self.controller is not None
        measurements = self.controller.measured
        if message.failure is not None:
            self.failures.append(message.failure)
        if message.item is not None:
            self._check_item(message.item)
            measurements.items[ScenarioUnit.of(message.item)] = message.item
        elif message.conversation is not None:
            self._check_conversation(message.conversation)
            assert isinstance(unit, ConversationUnit)
            measurements.conversations[unit] = message.conversation

    def _check_item(self, item: Item) -> None:
        if item.status not in (Status.MEASURED, Status.MODEL_FAILED) and (item.score is not None or item.points):
            self.world.fail(f"{item.id}: {item.status} with a score")

    def _check_conversation(self, conversation: Conversation) -> None:
        failed = [j for j in conversation.judgements if j.status is not Status.MEASURED and j.findings]
        if failed or any(final.status is not Status.MEASURED and final.scores for final in conversation.finals):
            self.world.fail(f"{conversation.id}: a judgement that failed has scores")

    def _check_accounts(self, store: RunStore) -> None:
        """What the store says was asked is what the server has served."""
        w = self.world
        stored = {exchange.request.key: exchange for exchange in self.exchanges}
        for key, exchange in stored.items():
            w._check_reply(exchange.request, exchange.reply, w.server.by_key.get(key, []))
        usage = store.usage()
        if sum(row.requests for row in usage) != len(stored):
            w.fail(f"the store counts {usage}, it has {len(stored)} replies")
        for name in ("prompt_tokens", "completion_tokens"):
            counted, held = (
                sum(getattr(r, name) for r in usage),
                sum(getattr(e.reply.usage, name) for e in stored.values()),
            )
            if counted != held:
                w.fail(f"the store counts {counted} {name}, its replies have {held}")
        missing = [key for key in w.committed if key not in stored]
        if missing:
            w.fail(f"{len(missing)} replies were stored and are no more")
        if w.has_met_faults() or w.damaged or self.stored:
            return
        # One whose reply was stored in the very step in which the session was interrupted has not heard of it.
        heard = {call.request.key for call in w.calls if call.ended == "stored"}
        ended = [
            call
            for call in w.calls
            if call.ended in ("stored", "booked")
            or (call.ended == "answered" and call.request.key in stored.keys() - heard)
        ]
        known = sum(max(len(call.servings), 1) for call in ended)
        booked = sum(row.requests + row.retries + row.failures for row in usage)
        if known != booked:
            w.fail(f"the server has served {known} requests of calls that ended, the store counts {booked}")
