"""Whole runs, played from a seed: sessions with any combination of faults until the run ends, and a last fair one.

Real: plan, controller, engine, runner, units, judges, client, retries, limits, store, evaluation. In place of pytest
and xdist: the loop below, which hands results over as they do.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.errors import StoreError, UserError
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.plugin.execution import UnitMessage
from pytest_spiral.plugin.scheduler import WorkerItems
from pytest_spiral.run.content import Content, SpiralContent
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.engine import Engine
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import RunPlan, Unit, all_units, make_plan
from pytest_spiral.run.runner import Runner
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status
from pytest_spiral.store import Exchange, RunStore
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.unit import ScenarioUnit
from tests.faults.runs import MODELS, _few_scenarios, measured
from tests.simulation.disk import DAMAGES, ERRORS, DiskFault, Killed, damage
from tests.simulation.network import Weather, draw_weather
from tests.simulation.world import Process, Violation, World, installed, world

__all__ = ["Outcome", "forget", "installed", "play"]

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_KEY = "sk-simulated"
_ENVIRON = {
    f"{role}_{what}": value
    for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE")
    for what, value in (("BASE_URL", "http://127.0.0.1:9/v1"), ("API_KEY", _KEY))
}


@dataclass(frozen=True)
class Shape:
    """What a run measures and with how many processes."""

    suites: tuple[Any, ...]
    turns: int
    openings: int
    prompting: tuple[Any, ...]
    workers: int
    concurrency: int
    retest: int

    @classmethod
    def draw(cls, rng: random.Random) -> Shape:
        """Any."""
        suites = rng.choice((("tempaffect",), ("spiral",), ("tempaffect", "spiral")))
        return cls(
            suites,
            rng.choice((2, 3)),
            rng.choice((1, 2)),
            rng.choice((("schema",), ("raw",), ("schema", "raw"))),
            rng.choice((0, 0, 1, 2, 3)),
            rng.choice((1, 2, 4, 16)),
            rng.choice((0, 0, 0, 50)),
        )

    def settings(self) -> Settings:
        """As options."""
        return Settings(
            model=(MODELS["evaluated"],),
            user_model=MODELS["user"],
            judge_model=(MODELS["judge"],),
            suite=self.suites,
            prompting=self.prompting,
            run_id="r",
            num_turns=self.turns,
            spiral_prompts="prompts.json",
            protocol="per-chunk",
            concurrency=self.concurrency,
            retest_share=self.retest,
        )


@dataclass
class Outcome:
    """What became of one seed. violation: the broken promise, "" if none was. digest: equal for equal courses."""

    seed: int
    violation: str
    trace: Sequence[str]
    sessions: int
    requests: int
    kills: int
    faults: Counter[str]
    seconds: float
    lost: bool


def _content(settings: Settings, shape: Shape, folder: Path) -> Content:
    content = Content(settings, folder)
    content.__dict__["suite"] = _few_scenarios(1)
    content.__dict__["spiral"] = _spiral_contents(shape.openings)
    return content


_SPIRAL: dict[int, SpiralContent] = {}


def _spiral_contents(openings: int) -> SpiralContent:
    if openings not in _SPIRAL:
        with tempfile.TemporaryDirectory() as folder:
            _write_openings(Path(folder), openings)
            settings = Settings(spiral_prompts="prompts.json", protocol="per-chunk")
            loaded = Content(settings, Path(folder)).spiral
        # Enough draws for every branch; how many decide nothing else.
        protocol = loaded.protocol.model_copy(update={"draws": 40})
        _SPIRAL[openings] = replace(loaded, protocol=protocol)
    return _SPIRAL[openings]


def _write_openings(folder: Path, count: int) -> None:
    openings = [
        {"prompt_id": f"p{n}", "category": "theory_development", "prompts": [f"my number is {n}. is it a sign?"]}
        for n in range(count)
    ]
    (folder / "prompts.json").write_text(json.dumps(openings))


@dataclass
class Session:
    """One session of a run: from its preparation to its report, or to its death.

    interrupt_at: step at which the user presses Ctrl-C. stored: what the store has from the start. deaths: after
    how many steps each worker dies. intruder_at: step at which somebody starts the same run a second time.
    reports: whether the report is made.
    """

    world: World
    shape: Shape
    interrupt_at: int | None = None
    stored: Sequence[tuple[ChatRequest, ChatReply]] = ()
    report: Mapping[str, Any] | None = None
    failures: list[str] = field(default_factory=list)
    controller: RunController | None = None
    workers: list[Worker] = field(default_factory=list)
    exchanges: Sequence[Exchange] = ()
    crashes: int = 0
    deaths: list[int] = field(default_factory=list)
    intruder_at: int | None = None
    reports: bool = True

    def play(self, faults: Sequence[DiskFault] = (), dies_at: int | None = None) -> None:
        """Raises `Violation`."""
        w = self.world
        w.most_in_flight = self.shape.concurrency
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
            if not any(_is_cause(raised, error) for raised in process.disk.raised):
                w.fail(f"unexpected {type(error).__name__}: {error}")
            w.note(f"the session ends: {type(error).__name__}: {error}")
            self.failures.append(str(error))
        finally:
            if self.controller is not None:
                with w.inside(process), suppress(Killed):
                    self.controller.close()
            w.end()

    def _play(self, process: Process) -> None:
        w, settings = self.world, self.shape.settings()
        content = _content(settings, self.shape, w.folder)
        plan = make_plan(settings, content, _ENVIRON, _NOW)
        controller = self.controller = RunController(plan, content, _ENVIRON)
        controller.prepare()
        controller.store.keep_all(self.stored)
        controller.check_models()
        plan = controller.plan
        units = all_units(plan, content)
        count = plan.active_workers(self.shape.workers) if self.shape.workers else 0
        if count == 0:
            self.workers.append(Worker(self, process, plan, content, units, controller.store))
        for rank in range(count):
            share = [units[index] for index in WorkerItems(rank=rank, of=count).indices([u.id for u in units])]
            self._start_worker(plan.model_copy(update={"rank": rank, "workers": count}), content, share)
        w.drive(lambda: self._done() or self._interrupted())
        complete = self._done()
        w.note("all units have ended" if complete else "interrupted")
        w.closing = True
        for worker in self.workers:
            worker.stop()
        if self.reports:
            report = evaluate(controller.results(["--model=m"], _NOW, complete=complete))
            self.report = json.loads(report.model_dump_json())
        self.exchanges = controller.store.exchanges()
        self._check_accounts(controller.store)

    def _start_worker(self, plan: RunPlan, content: Content, units: Sequence[Unit]) -> None:
        w = self.world
        process = w.start(f"session {w.session}, worker {plan.rank}" + (f" ({self.crashes})" if self.crashes else ""))
        if self.deaths:
            process.dies_at = w.steps + self.deaths.pop()
        self.workers.append(Worker(self, process, plan, content, units))

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
        return self.interrupt_at is not None and self.world.steps >= self.interrupt_at

    def _intrude(self) -> None:
        """The same run is started a second time: it must not come in."""
        w, settings = self.world, self.shape.settings()
        process = w.start(f"session {w.session}, a second controller")
        content = _content(settings, self.shape, w.folder)
        with w.inside(process):
            second = RunController(make_plan(settings, content, _ENVIRON, _NOW), content, _ENVIRON)
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
        known = sum(max(len(call.servings), 1) for call in w.calls if call.ended in ("stored", "booked"))
        booked = sum(row.requests + row.retries + row.failures for row in usage)
        if known != booked:
            w.fail(f"the server has served {known} requests of calls that ended, the store counts {booked}")


class Worker:
    """A process that works on units, as pytest in it would: all are under way, results are handed over in order."""

    def __init__(
        self,
        session: Session,
        process: Process,
        plan: RunPlan,
        content: Content,
        units: Sequence[Unit],
        store: RunStore | None = None,
    ) -> None:
        self.session, self.process, self.plan, self.content, self.units = session, process, plan, content, units
        self.delivered = 0
        self.replaced = False
        self.failed = False
        self._store = store
        self._runner: Runner | None = None
        process.main = self.main
        process.busy = lambda: not self.ended
        # The first thing that a loop does is to open the runner.
        process.loop.call_soon(self._open)

    @property
    def ended(self) -> bool:
        return self.delivered == len(self.units) or self.failed

    def _open(self) -> None:
        w = self.session.world
        try:
            store = self._store or RunStore.join(self.plan.store_path)
            chats = Chats(self.plan, self.content, store, Connections(self.plan, self.content, store, _ENVIRON))
            self._runner = Runner(self.plan, self.content, store, chats, Engine(self.process.loop))
            for unit in sorted(self.units, key=lambda unit: isinstance(unit, ScenarioUnit)):
                self._runner.submit(unit)
        except Exception as error:
            if not any(_is_cause(raised, error) for raised in self.process.disk.raised):
                w.fail(f"unexpected {type(error).__name__}: {error}")
            w.note(f"{self.process.name} cannot begin: {error}")
            self.failed = True

    def main(self) -> None:
        """Hand over what is ready."""
        w = self.session.world
        if self._runner is None or not self.process.alive:
            return
        while self.delivered < len(self.units):
            unit = self.units[self.delivered]
            future = self._runner.submit(unit)
            if not future.done():
                return
            with w.inside(self.process):
                text = self._result(unit)
            w.note(f"{self.process.name}: {unit.id} has ended")
            self.delivered += 1
            self.session.deliver(unit, text)

    def _result(self, unit: Unit) -> str:
        assert self._runner is not None
        w = self.session.world
        try:
            result = self._runner.wait(unit)
        except StoreError as error:
            if not self.process.disk.met and not w.damaged:
                w.fail(f"{unit.id}: {error}")
            return UnitMessage(failure=str(error)).model_dump_json(ensure_ascii=True)
        except Exception as error:
            if not any(_is_cause(raised, error) for raised in self.process.disk.raised):
                w.fail(f"{unit.id} ends with {type(error).__name__}: {error}")
            return UnitMessage(failure=f"{type(error).__name__}: {error}").model_dump_json(ensure_ascii=True)
        message = UnitMessage(item=result) if isinstance(result, Item) else UnitMessage(conversation=result)
        return message.model_dump_json(ensure_ascii=True)

    def stop(self) -> None:
        """The process ends in order."""
        if self._runner is not None and self.process.alive:
            with self.session.world.inside(self.process), suppress(Killed):
                self._runner.stop()
            self.process.stopped = True


def _is_cause(raised: BaseException, error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if seen is raised:
            return True
        seen = seen.__cause__ or seen.__context__
    return isinstance(error, StoreError)


def play(seed: int) -> Outcome:
    """One run, to its end."""
    rng = random.Random(f"play-{seed}")
    shape = Shape.draw(rng)
    with world(seed) as w:
        _write_openings(w.folder, shape.openings)
        w.note(f"seed {seed}: {shape}")
        outcome = Outcome(seed, "", w.trace, 0, 0, 0, Counter(), 0.0, False)
        try:
            _play(w, shape, rng, outcome)
        except Violation as violation:
            outcome.violation = str(violation)
        outcome.sessions, outcome.requests, outcome.seconds = w.session, len(w.server.served), w.clock.now
        outcome.faults = Counter(serving.what for serving in w.server.served)
    return outcome


def _play(w: World, shape: Shape, rng: random.Random, outcome: Outcome) -> None:
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        _troubled_session(w, shape, rng)
        if w.committed and rng.random() < 0.25:
            _damage(w, shape, rng)
    w.begin_session()
    w.server.weather = Weather()
    w.clock.skew = 0.0
    last = Session(w, shape)
    last.play()
    w.learn_committed()
    if last.failures:
        w.fail(f"the last session failed: {last.failures[0]}")
    assert last.report is not None
    differences = _differences(_expected_report(w, shape, last.exchanges), measured(last.report))
    if differences:
        w.fail(f"the report differs from an undisturbed run's: {differences}")


def _troubled_session(w: World, shape: Shape, rng: random.Random) -> None:
    """One session with anything in it."""
    w.begin_session()
    w.clock.skew = rng.choice((0.0, 0.0, 86_400.0, -172_800.0))
    w.server.weather = draw_weather(rng, w.clock.now)
    w.note(f"weather: {w.server.weather}")
    session = Session(w, replace(shape, workers=rng.choice((shape.workers, 0))))
    # Half of the time of a run is spent on its reports.
    session.reports = (w.seed + w.session) % 3 == 0
    dies_at = None
    faults = []
    trouble = rng.choice(("none", "kill", "kill in a statement", "workers", "interrupt", "disk", "disk", "disk"))
    number = int(2 ** rng.uniform(0, 10))
    if trouble == "kill":
        dies_at = w.steps + number
    elif trouble == "interrupt":
        session.interrupt_at = w.steps + number
    elif trouble == "workers":
        session.deaths = [int(2 ** rng.uniform(0, 8)) for _ in range(rng.choice((1, 2, 4)))]
    elif trouble == "kill in a statement":
        faults = [DiskFault(number, "kill", rng.choice(("before", "after")))]
    elif trouble == "disk":
        lasting = rng.random() < 0.2
        writing = rng.random() < 0.7
        number = int(2 ** rng.uniform(0, 7 if writing else 10))
        faults = [DiskFault(number, rng.choice(list(ERRORS)), rng.choice(("before", "after")), lasting, writing)]
    if rng.random() < 0.15:
        session.intruder_at = w.steps + int(2 ** rng.uniform(0, 8))
    session.play(faults, dies_at)
    w.learn_committed()


def _damage(w: World, shape: Shape, rng: random.Random) -> None:
    """Damage the store and resume: the run is refused, or goes on as if nothing had been. Then restore the store."""
    before = {path: path.read_bytes() for path in w.store_files()}
    kind = rng.choice(DAMAGES)
    what = damage(w.run_dir, kind, rng)
    w.note(f"damage: {what}")
    if not what:
        return
    if kind in ("bit", "value"):
        # What cannot be found any more is asked for again; what is found must be right.
        w.committed.clear()
    w.damaged = True
    w.begin_session()
    w.server.weather = Weather()
    session = Session(w, shape)
    session.play()
    refused = bool(session.failures)
    w.note("it was refused" if refused else "it was not noticed")
    if kind in ("emptied", "cut", "foreign") and not refused:
        w.fail(f"a store that was {kind} was taken as a good one")
    if refused:
        for path in w.store_files():
            path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
    elif session.report is not None:
        differences = _differences(_expected_report(w, shape, session.exchanges), measured(session.report))
        if differences:
            w.fail(f"after damage the report differs from an undisturbed run's: {differences}")
    w.committed.clear()
    w.learn_committed()


_KNOWN: dict[Shape, Any] = {}


def forget() -> None:
    """Forget reports of undisturbed runs: another program would make others."""
    _KNOWN.clear()


def _expected_report(w: World, shape: Shape, exchanges: Sequence[Exchange]) -> Any:
    """The report of an undisturbed run in one process.

    What a model said must be in it, even if it is not what a healthy endpoint would have said: then the undisturbed run
    starts with everything that was stored, and asks nothing.
    """
    shape = replace(shape, workers=0, concurrency=4)
    if any(serving.altered for e in exchanges for serving in w.server.by_key[e.request.key]):
        return _undisturbed(shape, w, [(exchange.request, exchange.reply) for exchange in exchanges])
    if shape not in _KNOWN:
        _KNOWN[shape] = _undisturbed(shape, None, ())
    return _KNOWN[shape]


def _undisturbed(shape: Shape, known: World | None, stored: Sequence[tuple[ChatRequest, ChatReply]]) -> Any:
    with world(known.seed if known else 0) as w:
        if known is not None:
            w.server.by_key = known.server.by_key
        _write_openings(w.folder, shape.openings)
        w.begin_session()
        session = Session(w, shape, stored=stored)
        session.play()
        if known is not None and w.server.served:
            known.fail(f"an undisturbed run asks for {w.server.served[0].call.request.unit} besides what was stored")
        assert session.report is not None
        return measured(session.report)


def _differences(expected: Any, found: Any, path: str = "") -> list[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        pairs = [(f"{path}.{key}", expected.get(key), found.get(key)) for key in sorted({*expected, *found})]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [(f"{path}.{n}", *pair) for n, pair in enumerate(zip(expected, found, strict=True))]
    else:
        return [] if expected == found else [f"{path}: {str(expected)[:80]} / {str(found)[:80]}"]
    return [difference for name, one, other in pairs for difference in _differences(one, other, name)][:4]
