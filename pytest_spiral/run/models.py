"""From a plan to the models of this process: who answers in which role, every reply kept."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_spiral.chat import ChatModel, Message
from pytest_spiral.models.budget import Budget, Ledger
from pytest_spiral.models.dry import DryAssistant, DryScenarioModel, DrySeeker
from pytest_spiral.models.endpoint import Endpoint, Secret
from pytest_spiral.models.limiter import Limiter
from pytest_spiral.models.openai_compatible import OpenAICompatible
from pytest_spiral.run.content import Content
from pytest_spiral.run.costs import paid_prices
from pytest_spiral.run.plan import ModelPlan, RunPlan, SuiteName
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.conversation import Judge, ModelJudge, Speaker, Table
from pytest_spiral.spiral.lexical import lexical_final, lexical_findings
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import ChunkJudgement, FinalJudgement, Retest
from pytest_spiral.store import RunStore, StoredChat

__all__ = ["Chats", "LexicalJudge", "endpoint_of", "open_budget", "pace_name"]


def endpoint_of(model: ModelPlan, environ: Mapping[str, str]) -> Endpoint:
    """The endpoint of a model that is reached over HTTP; its key is read from the environment here and nowhere else."""
    assert model.endpoint is not None
    variable = model.endpoint.key_variable
    return Endpoint(model.role, model.endpoint.base_url, Secret(environ[variable] if variable else ""))


def open_budget(plan: RunPlan) -> Budget | None:
    """The accounts of a run with --max-cost, None without. Raises `ConfigError` where the limit could not be kept."""
    limit = plan.settings.max_cost
    if limit is None or plan.settings.plan:
        return None
    return Budget(Ledger(plan.store_path), limit, paid_prices(plan.everybody))


def pace_name(model: ModelPlan) -> str:
    """Under which name the limit of a model that is reached over HTTP is agreed upon."""
    assert model.endpoint is not None
    return model.endpoint.base_url if model.concurrency is None else f"{model.endpoint.base_url} {model.model_id}"


class Chats:
    """The models of one process. Each is made when first asked for; those on one endpoint share its bound."""

    def __init__(self, plan: RunPlan, content: Content, store: RunStore, environ: Mapping[str, str]) -> None:
        self._plan = plan
        self._content = content
        self._store = store
        self._environ = environ
        self._limiters: dict[str, Limiter] = {}
        self._budget = open_budget(plan)
        # Never changes, so that no process need look it up.
        self._total = Limiter(plan.settings.concurrency, rank=plan.rank, of=plan.workers)
        self._made: dict[tuple[str, str, SuiteName], StoredChat] = {}
        self._tables: dict[str, Table] = {}

    def of(self, model: ModelPlan, suite: SuiteName) -> StoredChat:
        """The client of a model in a suite."""
        key = (model.role, model.spec, suite)
        if key not in self._made:
            self._made[key] = StoredChat(self._make(model, suite), self._store)
        return self._made[key]

    def _make(self, model: ModelPlan, suite: SuiteName) -> ChatModel:
        if model.kind == "dry":
            if model.role == "user":
                return DrySeeker({o.prompt_id: o.category for o in self._content.spiral.held})
            if suite == "spiral":
                return DryAssistant(model.spec)
            return DryScenarioModel(model.spec, self._content.suite)
        endpoint = endpoint_of(model, self._environ)
        rng = random.Random(f"{self._plan.settings.seed}-backoff-{model.role}-{model.spec}")
        return OpenAICompatible(endpoint, limiter=self._limiter(model), total=self._total, budget=self._budget, rng=rng)

    def _limiter(self, model: ModelPlan) -> Limiter:
        """One for all models on an endpoint, apart from those with a limit of their own."""
        name = pace_name(model)
        if name not in self._limiters:
            plan = self._plan
            self._limiters[name] = Limiter(plan.most_in_flight(model), name, plan.rank, plan.workers, self._store)
        return self._limiters[name]

    def table(self, spec: str) -> Table:
        """Everything conversations with an evaluated model need; all of them share it."""
        if spec not in self._tables:
            self._tables[spec] = self._set(spec)
        return self._tables[spec]

    def _set(self, spec: str) -> Table:
        spiral = self._content.spiral
        settings = self._plan.settings
        assert self._plan.user is not None
        return Table(
            evaluated=self._speaker(self._plan.model(spec)),
            user=self._speaker(self._plan.user),
            judges=self.judges(),
            actor=spiral.actor,
            protocol=spiral.protocol,
            seed=settings.seed,
            turns=settings.num_turns,
            prompt_file=spiral.prompt_file,
            retest_share=settings.retest_share,
            system=spiral.system,
        )

    def judges(self) -> tuple[Judge, ...]:
        """The judges of the run, in the order they were named."""
        return tuple(map(self._judge, self._plan.judges))

    def _speaker(self, model: ModelPlan) -> Speaker:
        chat, params = self.of(model, "spiral"), model.params["spiral"]
        return Speaker(model.role, model.model_id, chat, params, model.longest_string)

    def _judge(self, model: ModelPlan) -> Judge:
        spiral = self._content.spiral
        if model.kind == "dry":
            return LexicalJudge(model.spec, spiral.protocol)
        return ModelJudge(self._speaker(model), spiral.rubric, spiral.protocol, self._store.secret())

    async def aclose(self) -> None:
        """Release all connections."""
        for chat in self._made.values():
            await chat.aclose()
        if self._budget is not None:
            self._budget.close()


@dataclass(frozen=True)
class LexicalJudge:
    """The stand-in judge: cue words, no understanding. Costs nothing and needs no store."""

    name: str
    protocol: Protocol

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        behaviours = self.protocol.behaviours
        return ChunkJudgement(
            index=chunk.index,
            turns=chunk.turns,
            judge=self.name,
            behaviours=tuple(behaviours),
            findings=lexical_findings(chunk, behaviours, judge=self.name),
            chars=float(chunk.chars),
        )

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        judgement = await self.chunk(conversation, opening, chunk)
        return Retest("again", judgement), Retest("reordered", judgement)

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        scores = lexical_final(transcript, self.protocol.finals)
        return FinalJudgement(self.name, scores={name: float(score) for name, score in scores.items()})
