"""A simulated process that works on units, in place of pytest and xdist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pytest_spiral.errors import StoreError
from pytest_spiral.plugin.execution import UnitMessage
from pytest_spiral.run.content import Content
from pytest_spiral.run.engine import Engine
from pytest_spiral.run.models import Chats, Connections
from pytest_spiral.run.plan import RunPlan, Unit
from pytest_spiral.run.runner import Runner
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.unit import ScenarioUnit
from tests.simulation.disk import Killed
from tests.simulation.world import Process, World

__all__ = ["ENVIRON", "Deliver", "Worker", "is_cause"]

_KEY = "sk-simulated"
ENVIRON = {
    f"{role}_{what}": value
    for role in ("EVALUATED_MODEL", "USER_AGENT", "JUDGE")
    for what, value in (("BASE_URL", "http://127.0.0.1:9/v1"), ("API_KEY", _KEY))
}


Deliver = Callable[[Unit, str], None]


class Worker:
    """A process that works on units, as pytest in it would: all are under way, results are handed over in order."""

    def __init__(
        self,
        world: World,
        deliver: Deliver,
        process: Process,
        plan: RunPlan,
        content: Content,
        units: Sequence[Unit],
        open_store: Callable[[], RunStore],
    ) -> None:
        self.world, self.process, self.plan, self.content, self.units = world, process, plan, content, units
        self.delivered = 0
        self._deliver = deliver
        self.replaced = False
        self.failed = False
        self._open_store = open_store
        self._runner: Runner | None = None
        process.main = self.main
        process.busy = lambda: not self.ended
        # The first thing that a loop does is to open the runner.
        process.loop.call_soon(self._open)

    @property
    def ended(self) -> bool:
        return self.delivered == len(self.units) or self.failed

    def _open(self) -> None:
        w = self.world
        try:
            store = self._open_store()
            chats = Chats(self.plan, self.content, store, Connections(self.plan, self.content, store, ENVIRON))
            self._runner = Runner(chats, Engine(self.process.loop))
            for unit in sorted(self.units, key=lambda unit: isinstance(unit, ScenarioUnit)):
                self._runner.submit(unit)
        except Exception as error:
            lost = w.lost_at is not None and isinstance(error, StoreError)
            if not lost and not any(is_cause(raised, error) for raised in self.process.disk.raised):
                w.fail(f"unexpected {type(error).__name__}: {error}")
            w.note(f"{self.process.name} cannot begin: {error}")
            self.failed = True

    def main(self) -> None:
        """Hand over what is ready."""
        w = self.world
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
            self._deliver(unit, text)

    def _result(self, unit: Unit) -> str:
        assert self._runner is not None
        w = self.world
        try:
            result = self._runner.wait(unit)
        except StoreError as error:
            if not self.process.disk.met and not w.damaged:
                w.fail(f"{unit.id}: {error}")
            return UnitMessage(failure=str(error)).model_dump_json(ensure_ascii=True)
        except Exception as error:
            if not any(is_cause(raised, error) for raised in self.process.disk.raised):
                w.fail(f"{unit.id} ends with {type(error).__name__}: {error}")
            return UnitMessage(failure=f"{type(error).__name__}: {error}").model_dump_json(ensure_ascii=True)
        message = UnitMessage(item=result) if isinstance(result, Item) else UnitMessage(conversation=result)
        return message.model_dump_json(ensure_ascii=True)

    def stop(self) -> None:
        """The process ends in order."""
        if self._runner is not None and self.process.alive:
            with self.world.inside(self.process), suppress(Killed):
                self._runner.stop()
            self.process.stopped = True


def is_cause(raised: BaseException, error: BaseException) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if seen is raised:
            return True
        seen = seen.__cause__ or seen.__context__
    return isinstance(error, StoreError)
