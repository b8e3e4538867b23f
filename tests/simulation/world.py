"""One simulated machine: processes with their own event loops, a shared clock, a disk, and an endpoint far away.

Everything that happens follows from one seed. What a process must never do raises `Violation`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.errors import ChatError
from pytest_spiral.status import ReasonCode
from tests.simulation import disk as disks
from tests.simulation.clock import Clock, VirtualLoop
from tests.simulation.disk import Disk, Killed
from tests.simulation.network import Call, Server, Serving
from tests.simulation.shape import PRICE

__all__ = ["Process", "Violation", "World"]

T = TypeVar("T")
# Iterations of all loops together in one session; a fair run needs some hundreds.
_MOST_STEPS = 60_000
# Virtual seconds of one session. Patience ends before.
_LONGEST = 6 * 3600.0


class Violation(AssertionError):
    """A run has broken a promise."""


@dataclass
class Process:
    """A simulated process. dies_at: number of the step before which it is killed."""

    name: str
    loop: VirtualLoop
    disk: Disk
    alive: bool = True
    stopped: bool = False
    busy: Callable[[], bool] = lambda: False
    main: Callable[[], None] = lambda: None
    dies_at: int | None = None


@dataclass
class World:
    """Everything of one seed.

    committed: keys of replies known to be stored, with the step at which that was learned. calls: all that were made.
    damaged: the store's files were changed behind its back. met: a disk has failed, or the power. lost_at: when the run
    directory was taken away in this session. max_cost: what may be spent in USD, None for any amount. cost: of all
    sessions with a limit, in USD. cut_at: step at which the power fails. remains: what was on the disk then.
    """

    seed: int
    folder: Path
    clock: Clock = field(default_factory=Clock)
    processes: list[Process] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    steps: int = 0
    session: int = 0
    first_step: int = 0
    first_time: float = 0.0
    closing: bool = False
    current: Process | None = None
    violation: Violation | None = None
    damaged: bool = False
    most_in_flight: int = 0
    met: bool = False
    lost_at: float | None = None
    max_cost: float | None = None
    cost: float = 0.0
    cut_at: int | None = None
    remains: dict[Path, bytes] | None = None
    troubles: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"world-{self.seed}")
        self.server = Server(self.seed, lambda: self.clock.now, self._check_serving)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        text = text.replace(str(self.folder), "RUN")
        self.trace.append(f"{self.clock.now:9.3f} s, step {self.steps:5}: {text}")

    def fail(self, what: str) -> None:
        """Report a broken promise."""
        if self.violation is None:
            self.note(f"VIOLATION: {what}")
            self.violation = Violation(what)
        raise self.violation

    # Processes

    def start(self, name: str) -> Process:
        """A new process."""
        disk = Disk(name, note=self.note)
        process = Process(name, VirtualLoop(self.clock), disk)
        self.processes.append(process)
        self.note(f"{name} starts")
        return process

    @contextmanager
    def inside(self, process: Process) -> Iterator[None]:
        """What is done here is done by this process."""
        before, self.current = self.current, process
        try:
            yield
        finally:
            self.current = before

    def kill(self, process: Process) -> None:
        """The process ends here and now: nothing of it is cleaned up."""
        if not process.alive:
            return
        self.note(f"{process.name} is killed")
        process.alive = False
        files = {path: path.read_bytes() for path in self.store_files()}
        process.disk.drop()
        others = any(other.alive and other.disk.connections for other in self.processes)
        if not others:
            # The last connection to close would tidy up; one that is killed leaves everything as it was.
            for path, content in files.items():
                path.write_bytes(content)
        for serving in self.server.in_flight():
            if serving.call.process == process.name:
                serving.state = "abandoned"

    def store_files(self) -> list[Path]:
        """The store's files, as far as they exist."""
        names = ("run.sqlite", "run.sqlite-wal", "run.sqlite-shm")
        return [path for name in names if (path := self.run_dir / name).exists()]

    @property
    def run_dir(self) -> Path:
        return self.folder / "reports" / "r"

    def end(self) -> None:
        """End all processes of a session."""
        for process in self.processes:
            process.disk.drop()
            process.alive = False
            process.loop.set_exception_handler(lambda *_: None)
            for task in asyncio.all_tasks(process.loop):
                # Here and not whenever the garbage is collected. Nothing that it does on its way out has an effect.
                with suppress(BaseException):
                    coroutine = task.get_coro()
                    assert coroutine is not None
                    coroutine.close()
            process.loop.close()
        self.met = self.has_met_faults()
        self.processes.clear()

    def has_met_faults(self) -> bool:
        """Whether any disk has failed so far."""
        return self.met or any(process.disk.met for process in self.processes)

    # Time

    def begin_session(self) -> None:
        """Count steps and time anew."""
        self.session += 1
        self.server.session = self.session
        self.first_step, self.first_time = self.steps, self.clock.now
        self.closing = False
        self.lost_at = self.max_cost = self.cut_at = self.remains = None

    def drive(self, done: Callable[[], bool]) -> None:
        """Run processes, one iteration at a time, until `done`. Raises `Killed` if the first process dies."""
        while not done():
            self._pick().main()
            if not self.processes[0].alive:
                raise Killed

    def _pick(self) -> Process:
        """Step one process that has something to do; where none has, let time pass first."""
        while True:
            alive = [process for process in self.processes if process.alive]
            ready = [process for process in alive if process.loop.is_ready()]
            if ready:
                break
            for process in alive:
                if process.busy() and process.loop.next_timer() is None:
                    self.fail(f"{process.name} waits for ever: no request in flight and no timer")
            timers = [when for process in alive if (when := process.loop.next_timer()) is not None]
            if not timers:
                self.fail("nothing is left to do, and the run has not ended")
            self.clock.now = max(self.clock.now, min(timers))
        process = self.rng.choice(ready)
        self.step(process)
        if self.steps - self.first_step > _MOST_STEPS:
            self.fail(f"the run comes to no end in {_MOST_STEPS} steps")
        if self.clock.now - self.first_time > _LONGEST:
            self.fail(f"the run comes to no end in {_LONGEST / 3600:g} hours")
        return process

    def step(self, process: Process) -> None:
        """One iteration of a process's loop; where its end has come, its end."""
        self.steps += 1
        if self.cut_at is not None and self.steps >= self.cut_at:
            self.note("the power fails")
            self.remains, self.cut_at = {path: path.read_bytes() for path in self.store_files()}, None
            for each in self.processes:
                self.kill(each)
            return
        if process.dies_at is not None and self.steps >= process.dies_at:
            self.kill(process)
            return
        with self.inside(process):
            try:
                process.loop.step()
            except Killed:
                self.kill(process)
        if self.violation is not None:
            # Found inside a task, which may have swallowed it.
            raise self.violation

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `asyncio.run` does, in the process that is running."""
        assert self.current is not None
        process = self.current
        with self.inside(process):
            task = process.loop.create_task(work)
        self.drive(task.done)
        return task.result()

    # What is observed

    def begin_call(self, request: ChatRequest, once: bool) -> Call:
        """A model is asked for a reply. once: without trying again."""
        assert self.current is not None
        call = Call(request, self.current.name, self.steps, self.clock.now, once)
        self.calls.append(call)
        return call

    def end_call(self, call: Call, outcome: ChatReply | ChatError) -> None:
        """The call has ended. Its attempts must be those that the server has seen, and giving up must have a cause."""
        seen = len(call.servings)
        if isinstance(outcome, ChatReply):
            call.ended = "answered"
            if outcome.attempts != seen:
                self.fail(f"a reply says {outcome.attempts} attempts, the server saw {seen}")
            self._check_reply(call.request, outcome, call.servings[-1:])
            return
        call.ended = "failed"
        self.note(f"{call.process}: {call.request.unit} {call.request.role} gave up: {outcome}")
        if outcome.attempts != max(seen, 1) and outcome.attempts != seen:
            self.fail(f"a failure says {outcome.attempts} attempts, the server saw {seen}")
        self._check_cause(call, outcome.code)

    def book(self, request: ChatRequest, before: str, after: str) -> None:
        """The store knows the outcome of the last call of a request."""
        for call in reversed(self.calls):
            if call.request.key == request.key:
                if call.ended == before:
                    call.ended = after
                return

    def _check_cause(self, call: Call, code: ReasonCode) -> None:
        """A call may be given up for an answer that no second try can change, or after its patience."""
        last = call.servings[-1] if call.servings else None
        broken = any(process.disk.met for process in self.processes)
        if (code is ReasonCode.CLOSED and (self.closing or broken)) or (code is ReasonCode.STORE_FAILED and broken):
            return
        if last is not None and last.nature == "final" and last.code is code:
            return
        if last is not None and call.once and last.code is not None:
            return
        if code is ReasonCode.BUDGET and self.max_cost is not None:
            return
        if self.lost_at is not None and code is ReasonCode.CLOSED:
            return
        unusable = sum(serving.code in _UNUSABLE for serving in call.servings)
        waited = self.clock.now - call.at
        if unusable >= 3 or self._failed_alone(call) >= _FAILURES_ALONE:
            return
        passing = (ReasonCode.RATE_LIMITED, ReasonCode.SERVER_ERROR, ReasonCode.UNREACHABLE, ReasonCode.TIMEOUT)
        if code in passing and waited >= PATIENCE:
            return
        what = [serving.what for serving in call.servings]
        self.fail(f"{call.request.unit}: given up as {code} after {waited:.1f} s of {what}")

    def _failed_alone(self, call: Call) -> int:
        """How often this call failed although the endpoint answered others meanwhile."""
        answered = [s.answered for s in self.server.served if s.code is None and s.state == "delivered"]
        pairs = itertools.pairwise(call.servings)
        return 1 + sum(any(one.answered <= at <= other.answered for at in answered) for one, other in pairs)

    def check_stored(self, request: ChatRequest, reply: ChatReply) -> None:
        """A unit was given this reply as the stored one."""
        self.committed.setdefault(request.key, self.steps)
        self._check_reply(request, reply, self.server.by_key.get(request.key, []))

    def _check_reply(self, request: ChatRequest, reply: ChatReply, servings: list[Serving]) -> None:
        if not any(serving.expected is not None and serving.expected.fits(reply) for serving in servings):
            sent = [serving.expected or serving.what for serving in servings]
            self.fail(f"{request.unit} {request.role}: got {reply!r:.300}, the server sent {sent!r:.600}")

    def _check_serving(self, serving: Serving) -> None:
        call = serving.call
        self.note(f"{call.process}: {call.request.unit} {call.request.role} asks, met by: {serving.what}")
        known = self.committed.get(call.request.key)
        if known is not None and known < call.began:
            self.fail(f"{call.request.unit} {call.request.role}: paid for again, although it is stored")
        if call.servings and serving.at - call.servings[-1].answered < _FLOOR:
            self.fail(f"{call.request.unit} {call.request.role}: asks again at once after {call.servings[-1].what}")
        if len(self.server.in_flight()) >= self.most_in_flight:
            self.fail(f"more than {self.most_in_flight} requests in flight")
        if any(process.stopped and process.name == call.process for process in self.processes):
            self.fail(f"{call.process} sends a request after it was stopped")
        if self.lost_at is not None and call.at > self.lost_at + _LOOK:
            self.fail(f"{call.request.unit} {call.request.role}: asks although its reply can no longer be kept")
        if self.max_cost is not None and serving.expected is not None:
            self.cost += PRICE.cost(serving.expected.usage)
            if self.cost > self.max_cost:
                self.fail(f"{self.cost:.4f} USD are spent, {self.max_cost:.4f} allowed")

    def learn_committed(self) -> None:
        """Look into the file, past the store, for what a process that died had committed."""
        keys = {key[:32]: key for key in self.server.by_key}
        found = disks.stored_keys(self.store_files())
        for call in self.calls:
            if call.ended == "answered" and call.request.key[:32] in found - {k[:32] for k in self.committed}:
                call.ended = "stored"
        for key in found & keys.keys():
            self.committed.setdefault(keys[key], self.steps)


# Seconds. The default is longer.
PATIENCE = 500.0
_UNUSABLE = (ReasonCode.BAD_RESPONSE, ReasonCode.UNFINISHED)
# Failures of one call after which it may be given up although the endpoint answers others.
_FAILURES_ALONE = 6
# Seconds after which the loss of the run directory is noticed.
_LOOK = 1.001
# Seconds between a refusal and the next attempt, at least.
_FLOOR = 0.25
