"""The runner: works on the units of this process and hands out their results."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping

from pytest_spiral.chat import ChatModel
from pytest_spiral.session.chats import build_chat
from pytest_spiral.session.engine import Engine
from pytest_spiral.session.plan import RunPlan
from pytest_spiral.session.units import ScenarioUnit, ask_scenario
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.item import Item
from pytest_spiral.tempaffect.suite import Suite

__all__ = ["Runner"]


class Runner:
    """One per process that runs items. Nothing is sent before the first unit is submitted."""

    def __init__(self, plan: RunPlan, suite: Suite, store: RunStore, environ: Mapping[str, str]) -> None:
        self.plan = plan
        self.suite = suite
        self._store = store
        self._environ = environ
        self._engine: Engine | None = None
        self._chats: dict[str, ChatModel] = {}
        self._submitted: set[ScenarioUnit] = set()

    def chat(self, spec: str) -> ChatModel:
        """The model behind a spec; one client per process."""
        if spec not in self._chats:
            self._chats[spec] = build_chat(spec, self.plan, self.suite, self._store, self._environ)
        return self._chats[spec]

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine()
        return self._engine

    def submit(self, unit: ScenarioUnit) -> concurrent.futures.Future[Item]:
        """Start a unit in the background; known units are not started again."""
        model = self.plan.model(unit.model)
        self._submitted.add(unit)
        return self.engine.submit(
            unit,
            lambda: ask_scenario(
                unit, self.suite[unit.scenario_id], model.model_id, model.params, self.chat(unit.model)
            ),
        )

    def result(self, unit: ScenarioUnit, tick: Callable[[], None] | None = None) -> Item:
        """The unit's item, waited for."""
        return self.engine.wait(self.submit(unit), tick)

    def progress(self) -> tuple[int, int]:
        """Units that have ended, units submitted."""
        return self.engine.done(), len(self._submitted)

    def close(self) -> None:
        """Cancel what is left and release connections and the store. Harmless when called twice."""
        if self._engine is not None:
            self._engine.close(*(chat.aclose for chat in self._chats.values()))
        self._store.close()
