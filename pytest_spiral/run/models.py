"""The models of one process: who answers in which role, every reply stored."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pytest_spiral.chat import ChatModel, Role, token_limit
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.budget import Budget, Ledger
from pytest_spiral.models.circuit import Circuit
from pytest_spiral.models.dry import DryAssistant, DryScenarioModel, DrySeeker
from pytest_spiral.models.endpoint import OPTION_OF, Endpoint, RetryPolicy, shown_url
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.models.openai_compatible import OpenAICompatible
from pytest_spiral.models.parameters import Price
from pytest_spiral.models.token_limit import RaisingLimit
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import ModelPlan, RunPlan
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.conversation import ConversationSetup
from pytest_spiral.spiral.judges import Judge
from pytest_spiral.spiral.lexical import LexicalJudge
from pytest_spiral.spiral.prompting import Participant
from pytest_spiral.store import RunStore, StoredChat

if TYPE_CHECKING:
    from pytest_spiral.labelling.reply_judge import LexicalRater, ModelRater


_ONCE = RetryPolicy(max_attempts=1, max_rate_limited=1, max_bad_responses=1)


def endpoint_of(model: ModelPlan, environ: Mapping[str, str]) -> Endpoint:
    """The endpoint of a model that is reached over HTTP. Its secrets are read from the environment here only."""
    assert model.endpoint is not None
    return model.endpoint.endpoint(model.role, environ, patience=model.patience, **model.timeouts)


def pace_name(model: ModelPlan) -> str:
    """The name under which all processes share the limit on requests to a model. It is stored and reported."""
    assert model.endpoint is not None
    name = shown_url(model.endpoint.base_url)
    return name if model.concurrency is None else f"{name} {model.model_id}"


def paid_prices(models: Sequence[ModelPlan]) -> dict[tuple[Role, str], Price]:
    """The price of every model by role and model id. Raises `ConfigError` where --max-cost could not be kept."""
    prices: dict[tuple[Role, str], Price] = {}
    for model in models:
        where = f"{OPTION_OF[model.role]} {model.spec}"
        if model.kind == "replay":
            continue
        if model.price is None:
            raise ConfigError(
                f"--max-cost: no price is known for {where}; install pytest-spiral[prices] or paste into spiral.toml, "
                f"with prices in USD per million tokens:\n    [[model]]\n    match = {json.dumps(model.spec)}\n"
                "    price = { input = ..., output = ... }"
            )
        unbounded = [suite for suite, params in model.params.items() if token_limit(params) is None]
        if unbounded and (model.price.input or model.price.output):
            raise ConfigError(f"--max-cost: {where} has no token limit; set max_tokens for it in spiral.toml")
        prices[model.role, model.model_id] = model.price
    return prices


class Connector(Protocol):
    """Makes chat models."""

    def connect(self, model: ModelPlan, suite: SuiteName) -> ChatModel:
        """The model as a suite asks it."""

    def close(self) -> None:
        """Release what the models share. Harmless when called twice."""


class Connections:
    """Makes the models of a run: over HTTP, or built in. Those on one endpoint share its limit.

    Raises `ConfigError` for a --max-cost that cannot be kept.
    """

    def __init__(self, plan: RunPlan, content: Content, store: RunStore, environ: Mapping[str, str]) -> None:
        self._plan, self._content, self._store, self._environ = plan, content, store, environ
        self._limiters: dict[str, Limiter] = {}
        self._circuits: dict[tuple[str, str, float], Circuit] = {}
        self._budget: Budget | None = None
        if (limit := plan.settings.max_cost) is not None:
            self._budget = Budget(Ledger(plan.store_path), limit, paid_prices(plan.everybody))
        # The limit over all endpoints never changes, so processes need not agree on it.
        self._total = Limiter(plan.settings.concurrency, rank=plan.rank, of=plan.workers)

    def connect(self, model: ModelPlan, suite: SuiteName, *, once: bool = False) -> ChatModel:
        """The model as a suite asks it. once: without trying again, nor slowing down others where it is refused."""
        if model.kind == "dry":
            if model.role == "user":
                return DrySeeker({o.prompt_id: o.category for o in self._content.spiral.held})
            if suite == "spiral":
                return DryAssistant(model.spec)
            return DryScenarioModel(model.spec, self._content.suite)
        endpoint = endpoint_of(model, self._environ)
        plan, name = self._plan, pace_name(model)
        if name not in self._limiters:
            self._limiters[name] = Limiter(plan.most_in_flight(model), name, plan.rank, plan.workers, self._store)
        limiter: Limiter | None = self._limiters[name]
        # Behind one address each model may fail by itself.
        circuit = self._circuits.setdefault((endpoint.base_url, model.model_id, endpoint.patience), Circuit(endpoint))
        rng = random.Random(f"{plan.settings.seed}-backoff-{model.role}-{model.spec}")
        split = suite != "tempaffect" or model.role != "evaluated" or plan.settings.think_tags == "separate"
        if once:
            endpoint, limiter = replace(endpoint, retry=_ONCE), None
        return OpenAICompatible(
            endpoint, circuit=circuit, limiter=limiter, total=self._total, budget=self._budget, rng=rng, split=split
        )

    def pauses(self) -> list[str]:
        """One clause for each model whose endpoint is paused. For any thread."""
        return [
            f"{model} paused for {max(0.0, (circuit.next_probe or 0.0) - time.monotonic()):.0f} s: its endpoint fails"
            for (_, model, _), circuit in list(self._circuits.items())
            if circuit.is_open
        ]

    def close(self) -> None:
        """Close the budget. Harmless when called twice."""
        if self._budget is not None:
            self._budget.close()


class Chats:
    """The models of one process, each made when it is first needed; the store answers what it can."""

    def __init__(self, plan: RunPlan, content: Content, store: RunStore, connector: Connector) -> None:
        self.plan, self.content, self.store, self._connector = plan, content, store, connector
        self._chats: dict[tuple[str, str, SuiteName], ChatModel] = {}
        self._setups: dict[str, ConversationSetup] = {}

    def of(self, model: ModelPlan, suite: SuiteName) -> ChatModel:
        """The client of a model in a suite."""
        key = (model.role, model.spec, suite)
        if key not in self._chats:
            chat = StoredChat(self._connector.connect(model, suite), self.store)
            freedom = model.freedom.get(suite)
            # The public implementation keeps a reply that was cut off.
            keeps = suite == "spiral" and self.plan.settings.spiral_upstream
            raises = freedom is not None and not freedom.fixed_limit and not keeps
            self._chats[key] = RaisingLimit(chat, freedom) if freedom and raises else chat
        return self._chats[key]

    def setup(self, spec: str) -> ConversationSetup:
        """Everything conversations with an evaluated model need; all of them share it."""
        if spec not in self._setups:
            spiral, settings = self.content.spiral, self.plan.settings
            self._setups[spec] = ConversationSetup(
                evaluated=self._participant(self.plan.model(spec)),
                user=self._participant(self.plan.user) if self.plan.user else None,
                judges=self.judges(),
                setting=spiral.setting,
                protocol=spiral.protocol,
                seed=settings.seed,
                turns=settings.num_turns,
                prompt_file=spiral.prompt_file,
                retest_percent=settings.retest_share,
                system=None if spec in self.plan.floors else self.content.system,
            )
        return self._setups[spec]

    def judges(self, *, other_fence: bool = False) -> tuple[Judge, ...]:
        """The judges of the run, in the order they were named. other_fence: for asking the same in other words: even a
        judge that repeats itself word for word may then answer otherwise, as it may in another run."""
        spiral, secret = self.content.spiral, self.store.secret() + ("-again" if other_fence else "")
        return tuple(
            LexicalJudge(model.spec, spiral.protocol)
            if model.kind == "dry"
            else spiral.setting.judge(self._participant(model), spiral.protocol, secret)
            for model in self.plan.judges
        )

    def reply_judges(self) -> tuple[ModelRater | LexicalRater, ...]:
        """The second raters of TempAffect replies, in the order they were named."""
        if not self.plan.reply_judges:
            return ()
        # Workers without them load nothing of labels and reports.
        from pytest_spiral.labelling.reply_judge import LexicalRater, ModelRater

        return tuple(
            LexicalRater(model.spec)
            if model.kind == "dry"
            else ModelRater(self._participant(model, "tempaffect"), self.store.secret())
            for model in self.plan.reply_judges
        )

    def _participant(self, model: ModelPlan, suite: SuiteName = "spiral") -> Participant:
        chat, params = self.of(model, suite), model.sent(suite)
        return Participant(model.role, model.model_id, chat, params, model.longest_string, not model.schemaless)

    async def aclose(self) -> None:
        """Release all connections."""
        for chat in self._chats.values():
            await chat.aclose()
        self._connector.close()
