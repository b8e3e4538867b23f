"""`--plan`: a rehearsal of the run with invented replies, so that its calls are counted by the code that makes them."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from pytest_spiral.chat import ChatModel, ChatReply, ChatRequest, Role, TokenUsage, token_limit
from pytest_spiral.models.parameters import Price
from pytest_spiral.models.token_limit import raised
from pytest_spiral.resources import data_root
from pytest_spiral.run.calibrate import judge_labelled_turns, judge_twice
from pytest_spiral.run.content import Content
from pytest_spiral.run.costs import cost_of
from pytest_spiral.run.models import Chats
from pytest_spiral.run.plan import ModelPlan, RunPlan, Unit
from pytest_spiral.run.preflight import checks, remembered
from pytest_spiral.run.runner import Runner
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.anchors import load_anchors
from pytest_spiral.spiral.conversation import ConversationUnit
from pytest_spiral.store import RunStore
from pytest_spiral.tables import Positive, Table, read_table
from pytest_spiral.tempaffect.contract import output_schema

_KIND: Mapping[tuple[Role, SuiteName], str] = {
    ("evaluated", "tempaffect"): "scenario",
    ("evaluated", "spiral"): "assistant",
    ("user", "spiral"): "seeker",
    ("judge", "spiral"): "judgement",
    ("reply_judge", "tempaffect"): "reply_judgement",
}


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What one model in one role will be asked for.

    prompt_tokens, completion_tokens, cost_usd: with replies of usual length. most_usd: with every reply as long as its
    token limit allows. Both without retries and without prompt caching; None where no price is known.
    reasoning_tokens: of each reply, part of its completion tokens, as preflight counted (is_counted) or as declared.
    price: None where none is known.
    """

    role: Role
    model: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    most_usd: float | None
    reasoning_tokens: int
    is_counted: bool
    price: Price | None


def estimate(plan: RunPlan, content: Content, units: Sequence[Unit]) -> list[CostEstimate]:
    """Estimates for `units`, by role and model; what an existing run has in its store is not counted again.

    Nothing is sent or written. Raises `UserError` for a run id that belongs to another configuration.
    """
    # In memory, with everything that an existing run has stored.
    identity = plan.identity(content)
    store = RunStore.in_memory(identity)
    if plan.store_path.is_file():
        existing = RunStore.create_or_resume(plan.store_path, identity)
        store.set_secret(existing.secret())
        store.keep_all((exchange.request, exchange.reply) for exchange in existing.exchanges())
        existing.close()
    known = remembered(plan, content, store)
    plan = known.plan
    counted = {(each.role, each.model): each.reasoning_tokens for each in known.records if each.reasoning_tokens}
    reasoning = {(m.role, m.spec): m.reasoning_tokens for m in plan.everybody} | counted
    rehearsal = _Rehearsal(reasoning, judged=bool(plan.reply_judges))
    chats = Chats(plan, content, store, rehearsal)
    runner = Runner(chats)
    try:
        _walk_through(chats, runner, units)
    finally:
        runner.close()
    rows = []
    for model in plan.everybody:
        count = rehearsal.counts.get((model.role, model.model_id))
        if count is not None:
            usual = TokenUsage(count.prompt, 0, count.completion)
            most = TokenUsage(count.prompt + count.more_prompt, 0, count.completion + count.more_completion)
            cost, bound = (cost_of(count.calls, each, model.price) for each in (usual, most))
            who, tokens = (model.role, model.spec), (count.prompt, count.completion)
            rows.append(
                CostEstimate(*who, count.calls, *tokens, cost, bound, reasoning[who], who in counted, model.price)
            )
    return rows


def _walk_through(chats: Chats, runner: Runner, units: Sequence[Unit]) -> None:
    plan, content, store = chats.plan, chats.content, chats.store
    asked = [] if plan.settings.no_preflight else [model for model in plan.everybody if model.kind == "remote"]
    for check in (check for model in asked for check in checks(model, plan, content, store.secret())):
        if check.known(store) is None:
            params = dict(check.model.sent(check.suite))
            if (limit := token_limit(params)) is not None and plan.settings.max_cost is None:
                # One reply at the highest limit shows how much room the model needs.
                freedom = check.model.freedom[check.suite]
                params[limit.name] = raised(limit.value, freedom, freedom.most_tokens)
            request = check.request(params)
            runner.engine.start(chats.of(check.model, check.suite).complete(request)).result()
    spiral = plan.judges and any(isinstance(unit, ConversationUnit) for unit in units)
    if spiral and (anchors := load_anchors(content.spiral.protocol)) is not None:
        runner.engine.start(judge_twice(chats, anchors)).result()
    if plan.settings.calibrate and plan.judges:
        runner.engine.start(judge_labelled_turns(chats.judges(), content.calibration_labels())).result()
    for unit in units:
        runner.submit(unit)
    for unit in units:
        runner.wait(unit)


@dataclass(slots=True)
class _Count:
    """Tokens with replies of usual length, and what comes on top where every reply runs to its limit."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    more_prompt: int = 0
    more_completion: int = 0


class _Usual(Table):
    """`cost.toml`: lengths of what nobody has asked for yet, in characters."""

    chars_per_token: Annotated[float, Field(gt=0)]
    reply_chars: Mapping[str, Positive]


class _Rehearsal:
    """Makes models that invent their replies.

    excess: by the mark that a model's replies begin with, tokens of such a reply beyond the usual if it runs to its
    limit. reasoning: tokens of a reply's reasoning by role and model. judged: whether judges read TempAffect
    replies, which must be valid for that.
    """

    def __init__(self, reasoning: Mapping[tuple[Role, str], int], *, judged: bool) -> None:
        self.judged, self.reasoning = judged, reasoning
        self.counts: dict[tuple[Role, str], _Count] = defaultdict(_Count)
        self.excess: dict[str, int] = {}
        self.usual = read_table(_Usual, data_root() / "cost.toml")

    def connect(self, model: ModelPlan, suite: SuiteName) -> ChatModel:
        """A model whose replies can be recognised in later prompts."""
        mark = f"qz{len(self.excess)}x"
        self.excess[mark] = 0
        chars = self.usual.reply_chars[_KIND[model.role, suite]]
        answers = self.judged and (model.role, suite) == ("evaluated", "tempaffect")
        return _Inventor(self, chars, self.reasoning[model.role, model.spec], mark, answers)

    def close(self) -> None:
        """Nothing to release."""


@dataclass
class _Inventor:
    """Replies of usual length, counted.

    reasoning: its tokens, which no later prompt quotes. mark: how replies begin, to be recognised wherever one does.
    answers: whether they are valid answers to scenarios.
    """

    rehearsal: _Rehearsal
    usual_chars: float
    reasoning: int
    mark: str
    answers: bool
    _number: Iterator[int] = field(default_factory=itertools.count)

    async def complete(self, request: ChatRequest) -> ChatReply:
        per_token = self.rehearsal.usual.chars_per_token
        excess = self.rehearsal.excess
        expected = round(self.usual_chars / per_token)
        bound = token_limit(request.params)
        limit = bound.value if bound else expected
        tokens = min(limit, expected)
        # A limit that is too low for both would be raised.
        limit = max(limit, tokens + self.reasoning)
        excess[self.mark] = limit - tokens - self.reasoning
        contents = [message.content for message in request.messages]
        schema = "" if request.schema is None else json.dumps(request.schema)
        count = self.rehearsal.counts[request.role, request.model]
        count.calls += 1
        count.prompt += round((sum(map(len, contents)) + len(schema)) / per_token)
        count.more_prompt += sum(text.count(mark) * more for text in contents for mark, more in excess.items())
        count.completion += tokens + self.reasoning
        count.more_completion += limit - tokens - self.reasoning
        if request.schema is not None and not self.answers:
            return ChatReply(json.dumps(_smallest(request.schema)))
        # Text of about the usual length that no rule takes for a loop: few words, each used once.
        chars = round(tokens * per_token)
        length = max(11, chars // 1000)
        words = (_word(next(self._number)).rjust(length, "o") for _ in range(max(1, chars // (length + 1)) - 1))
        text = " ".join([self.mark.rjust(length, "o"), *words])
        return ChatReply(json.dumps({**_smallest(output_schema()), "reply": text}) if self.answers else text)

    async def aclose(self) -> None:
        return None


def _word(number: int) -> str:
    letters = "abcdefghijklmn"
    return (_word(number // len(letters)) if number >= len(letters) else "") + letters[number % len(letters)]


def _smallest(schema: Mapping[str, Any]) -> Any:
    """The smallest document that our own schemas allow."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    empty: Mapping[str, Any] = {"string": "", "array": [], "integer": 0, "number": 0, "boolean": False, "null": None}
    kind = schema.get("type")
    if kind == "object":
        return {name: _smallest(schema["properties"][name]) for name in schema.get("required", ())}
    return empty[kind] if isinstance(kind, str) and kind in empty else None
