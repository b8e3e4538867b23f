"""The runner: works on the units of this process and hands out their results."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping
from dataclasses import replace

from pytest_spiral.chat import ChatModel, ChatReply, ChatRequest, Message
from pytest_spiral.errors import ConfigError
from pytest_spiral.run.engine import Engine
from pytest_spiral.run.models import Chats
from pytest_spiral.run.plan import ModelPlan, Unit
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.content import OpeningPrompt
from pytest_spiral.spiral.conversation import ConversationUnit, converse, rejudge
from pytest_spiral.spiral.judges import Judge
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.tempaffect.records import Item, ReplyJudgement
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.unit import ScenarioUnit, ask_scenario, recorded_item

Result = Item | Conversation


class Runner:
    """One per process that runs items. Nothing is sent before the first unit is submitted."""

    def __init__(self, chats: Chats, engine: Engine | None = None) -> None:
        self.plan, self._content, self._store = chats.plan, chats.content, chats.store
        self._chats, self._engine = chats, engine

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            self._engine = Engine()
        return self._engine

    def submit(self, unit: Unit) -> concurrent.futures.Future[Result]:
        """Start a unit in the background; known units are not started again."""
        return self.engine.submit(unit, lambda: self._work(unit))

    async def _work(self, unit: Unit) -> Result:
        recording = self._content.recording
        if recording is not None:
            if isinstance(unit, ScenarioUnit):
                scenario, output = self._content.suite[unit.scenario_id], recording.outputs[unit]
                return await self._judged(recorded_item(output, scenario), scenario, output.judged)
            recorded = recording.conversations[unit]
            return await self._rejudged(recorded) if self.plan.settings.redo_judging else recorded
        if isinstance(unit, ConversationUnit):
            opening, setup = self._content.spiral.by_id[unit.prompt_id], self._chats.setup(unit.model)
            if opening.twin_of:
                setup = replace(setup, turns=self._content.spiral.twin_turns)
            return await converse(unit, opening, setup)
        model = self.plan.model(unit.model)
        scenario = self._content.suite[unit.scenario_id]
        asked = (model.model_id, model.sent("tempaffect"), self._chats.of(model, "tempaffect"), self._content.system)
        return await self._judged(await ask_scenario(unit, scenario, *asked), scenario)

    async def _judged(self, item: Item, scenario: Scenario, known: tuple[ReplyJudgement, ...] = ()) -> Item:
        """The item with what the judges of replies say. known: of a recording, kept unless judges are named."""
        if item.answer is None or not (judges := self._chats.reply_judges()):
            return replace(item, judged=known if item.answer else ())
        # Workers without judges of replies load nothing of labels and reports.
        from pytest_spiral.labelling.files import reply_text

        text = reply_text(scenario, item.answer.reply)
        return replace(item, judged=tuple(await asyncio.gather(*(judge.rate(item.id, text) for judge in judges))))

    def wait(self, unit: Unit, tick: Callable[[], None] | None = None) -> Result:
        """Wait for a unit. Its result is handed over, not kept.

        Waited for again, as by a plugin for reruns, the unit goes through its stored replies again: what was measured
        stays as it is, what an instrument failed is asked once more.
        """
        result = self.engine.wait(self.submit(unit), tick)
        self.engine.release(unit)
        return result

    def evaluated(self, spec: str) -> EvaluatedModel:
        """The model behind a spec, for custom tests."""
        model = self.plan.model(spec)
        return self._asked(model, next(iter(model.params)))

    def _asked(self, model: ModelPlan, suite: SuiteName) -> EvaluatedModel:
        return EvaluatedModel(model, model.sent(suite), self._chats.of(model, suite), self.engine)

    def simulated_user(self) -> EvaluatedModel:
        """The model that plays the user. Raises `ConfigError` for a run without conversations."""
        if self.plan.user is None:
            raise ConfigError("this run has no simulated user; run it with --suite spiral")
        return self._asked(self.plan.user, "spiral")

    def judges(self) -> tuple[Judge, ...]:
        """The judges. Raises `ConfigError` for a run without conversations."""
        if not self.plan.judges:
            raise ConfigError("this run has no judge; run it with --suite spiral")
        return self._chats.judges()

    async def converse(
        self, opening: str, *, turns: int | None = None, category: str = "own", prompt_id: str = "own-1", index: int = 0
    ) -> Conversation:
        """The conversation that begins with `opening`, not judged. A failing instrument is reported by its status.

        Args:
            opening: The first user message.
            turns: Replies of the evaluated model; those of the run by default.
            category: For the built-in simulated user.
            prompt_id: Name of the opening.
            index: Another number holds the same conversation anew.
        """
        model = next(iter(self.plan.of_suite("spiral")), None)
        if model is None:
            raise ConfigError("this run has no conversations; run it with --suite spiral")
        setup = replace(self._chats.setup(model), judges=(), turns=turns or self.plan.settings.num_turns)
        start = OpeningPrompt(prompt_id=prompt_id, category=category, prompts=(opening,))
        unit = ConversationUnit(model, prompt_id, index)
        return await asyncio.wrap_future(self.engine.start(converse(unit, start, setup)))

    async def judge(self, conversation: Conversation) -> Conversation:
        """The conversation with the judgements of the run's judges."""
        self.judges()
        return await asyncio.wrap_future(self.engine.start(self._rejudged(conversation)))

    async def _rejudged(self, conversation: Conversation) -> Conversation:
        settings = self.plan.settings
        protocol = self._content.spiral.protocol
        return await rejudge(conversation, protocol, self._chats.judges(), settings.seed, settings.retest_share)

    def stop(self) -> None:
        """Cancel what is left and release connections: nothing is sent after this. Harmless when called twice."""
        if self._engine is not None:
            self._engine.close(self._chats.aclose)

    def close(self) -> None:
        """Stop, and release the store. Harmless when called twice."""
        self.stop()
        self._store.close()


class EvaluatedModel:
    """A model of the run for custom tests. Calls run in the engine's loop, whatever loop the test runs in."""

    def __init__(self, plan: ModelPlan, params: Mapping[str, object], chat: ChatModel, engine: Engine) -> None:
        self._plan, self._params, self._chat, self._engine = plan, params, chat, engine

    @property
    def spec(self) -> str:
        """What `--model` says."""
        return self._plan.spec

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer a request. Raises `ChatError`."""
        return await asyncio.wrap_future(self._engine.start(self._chat.complete(request)))

    async def ask(self, text: str, *, system: str | None = None, unit: str = "", sample: int = 0) -> str:
        """The model's reply to one message, asked with the parameters of the run. Raises `ChatError`.

        sample: another number has the same message answered anew.
        """
        messages = (*((Message("system", system),) if system else ()), Message("user", text))
        request = ChatRequest(self._plan.role, self._plan.model_id, messages, self._params, None, sample, unit)
        return (await self.complete(request)).text

    async def aclose(self) -> None:
        """Does nothing: the run closes its models."""
