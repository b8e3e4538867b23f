"""The runner: works on the units of this process and hands out their results."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping

from pytest_spiral.chat import ChatModel
from pytest_spiral.records import ChatReply, ChatRequest, Message
from pytest_spiral.session.chats import build_chat
from pytest_spiral.session.engine import Engine
from pytest_spiral.session.plan import ModelPlan, RunPlan
from pytest_spiral.session.units import ScenarioUnit, ask_scenario
from pytest_spiral.store import RunStore
from pytest_spiral.tempaffect.item import Item
from pytest_spiral.tempaffect.suite import Suite

__all__ = ["EvaluatedModel", "Runner"]


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

    def evaluated(self, spec: str) -> EvaluatedModel:
        """The model behind a spec, to be asked from a user's own tests."""
        return EvaluatedModel(self.plan.model(spec), self.chat(spec), self.engine)

    def progress(self) -> tuple[int, int]:
        """Units that have ended, units submitted."""
        return self.engine.done(), len(self._submitted)

    def close(self) -> None:
        """Cancel what is left and release connections and the store. Harmless when called twice."""
        if self._engine is not None:
            self._engine.close(*(chat.aclose for chat in self._chats.values()))
        self._store.close()


class EvaluatedModel:
    """An evaluated model for tests of one's own. Calls run in the engine's loop, whatever loop the test runs in."""

    def __init__(self, plan: ModelPlan, chat: ChatModel, engine: Engine) -> None:
        self._plan = plan
        self._chat = chat
        self._engine = engine

    @property
    def spec(self) -> str:
        """What `--model` says."""
        return self._plan.spec

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer a request of one's own making. Raises `ChatError`."""
        return await asyncio.wrap_future(self._engine.start(self._chat.complete(request)))

    async def ask(self, text: str, *, system: str | None = None, unit: str = "", sample: int = 0) -> str:
        """The model's reply to one message, asked with the parameters of the run. Raises `ChatError`.

        sample: give another number to have the same message answered anew.
        """
        messages = (*((Message("system", system),) if system else ()), Message("user", text))
        request = ChatRequest("evaluated", self._plan.model_id, messages, self._plan.params, None, sample, unit)
        return (await self.complete(request)).text

    async def aclose(self) -> None:
        """Nothing: the run closes its models."""
