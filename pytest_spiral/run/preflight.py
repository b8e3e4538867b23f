"""Preflight: before any item, each model is asked once in every way in which the run will ask it.

What the endpoint refuses and nobody has chosen is changed, and the run keeps to it; whatever else would spoil the run
ends it before anything is measured. Replies are stored: a resumed run learns the same from them without asking again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from pydantic import JsonValue

from pytest_spiral.chat import TOKEN_LIMITS, ChatReply, ChatRequest, Message, digest_of, token_limit
from pytest_spiral.errors import ChatError, ConfigError, RefusedRequest
from pytest_spiral.labelling.files import ItemText
from pytest_spiral.labelling.reply_judge import ModelRater, rating_question
from pytest_spiral.models.openai_compatible import list_models
from pytest_spiral.models.token_limit import cut_off, raised
from pytest_spiral.report.model.run import Preflight
from pytest_spiral.resources import data_root
from pytest_spiral.run.content import Content
from pytest_spiral.run.models import Connections, endpoint_of
from pytest_spiral.run.plan import ModelPlan, RunPlan
from pytest_spiral.run.remedies import unusable, unusable_reply
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.chunks import Chunk, chunk_transcript
from pytest_spiral.spiral.prompting import Participant
from pytest_spiral.spiral.records import ChunkJudgement
from pytest_spiral.status import ReasonCode, Status
from pytest_spiral.store import PREFLIGHT, RunStore, StoredChat, StoredExchange
from pytest_spiral.strict_json import StrictJson
from pytest_spiral.tables import Table, read_table
from pytest_spiral.tempaffect.contract import output_schema
from pytest_spiral.tempaffect.records import ReplyJudgement
from pytest_spiral.tempaffect.suite import messages_for

Way = Literal["raw", "schema", "conversation", "message", "judgement"]
# A limit for all replies, from one reply: they differ in length.
_HEADROOM = 4
_JSON = StrictJson(max_nesting=64, max_digits=20)


@dataclass(frozen=True)
class Check:
    """One question, in one way in which the run will ask the model."""

    model: ModelPlan
    suite: SuiteName
    way: Way
    messages: tuple[Message, ...]
    schema: Mapping[str, JsonValue] | None = None

    @property
    def unit(self) -> str:
        """Its name in the store, another one for other parameters."""
        configured = json.dumps(self.model.params[self.suite], sort_keys=True)
        return f"{PREFLIGHT}{self.way} {digest_of(configured).hex()[:12]}"

    def known(self, store: RunStore) -> StoredExchange | None:
        """The question and its answer where it was asked before."""
        return store.last_exchange(self.unit, self.model.role, self.model.model_id)

    def request(self, params: Mapping[str, object], sample: int = 0, *, schemaless: bool = False) -> ChatRequest:
        """The question as a request."""
        model, schema = self.model, None if schemaless else self.schema
        return ChatRequest(model.role, model.model_id, self.messages, params, schema, sample, self.unit)


@dataclass(frozen=True)
class Examined:
    """What preflight has learned. enforcement: by evaluated model, whether its endpoint enforces JSON schemas."""

    plan: RunPlan
    records: tuple[Preflight, ...]
    enforcement: Mapping[str, bool]


class _Texts(Table):
    """What models are asked; of no suite, so that nothing that is scored is known from here."""

    canary: str
    situation: dict[str, str | int]
    word: str
    token: str
    conversation: tuple[Message, ...]


@cache
def _texts() -> _Texts:
    return read_table(_Texts, data_root() / "preflight.json")


def checks(model: ModelPlan, plan: RunPlan, content: Content, secret: str) -> Iterator[Check]:
    """The questions to one model. Built-in models need none, local ones only show whether schemas are enforced."""
    modes = plan.settings.prompting
    if model.role == "reply_judge":
        if model.kind == "remote":
            yield Check(model, "tempaffect", "judgement", *rating_question(_reply(), secret, model.longest_string))
        return
    if "tempaffect" in model.params and model.kind in ("remote", "local"):
        # First, because more can be wrong with it: what it finds costs one call.
        if "schema" in modes:
            yield Check(model, "tempaffect", "schema", (Message("user", _texts().word),), _pinned_schema())
        if "raw" in modes and model.kind == "remote":
            yield Check(model, "tempaffect", "raw", messages_for(_texts().situation, content.system))
    if "spiral" not in model.params or model.kind != "remote":
        return
    spiral, talk = content.spiral, _texts().conversation
    if model.role == "evaluated":
        system = [Message("system", content.system)] if content.system else []
        yield Check(model, "spiral", "conversation", (*system, *talk[:-1]))
    elif model.role == "user":
        prompt = spiral.setting.user_prompt(spiral.setting.system_prompt(""))
        for message in talk:
            prompt.add(message)
        yield Check(model, "spiral", "message", prompt.messages(None))
    else:
        about = (spiral.protocol, talk[0].content, _chunk(content), secret)
        yield Check(model, "spiral", "judgement", *spiral.setting.question(*about, model.longest_string))


def _chunk(content: Content) -> Chunk:
    return chunk_transcript(_texts().conversation, content.spiral.protocol)[0]


def _reply() -> ItemText:
    situation, talk = _texts().situation, _texts().conversation
    shown = f"{situation['agent_role']}\n\n{situation['agent_context']}"
    return ItemText(situation=shown, user=str(situation["user_message"]), assistant=talk[-1].content)


def _pinned_schema() -> Mapping[str, JsonValue]:
    """The schema of the answers, with a reply that nobody can guess: who gives it was held to the schema."""
    schema: dict[str, dict[str, JsonValue]] = json.loads(json.dumps(dict(output_schema())))
    schema["properties"]["reply"] = {"type": "string", "enum": [_texts().token]}
    return {**schema}


def remembered(plan: RunPlan, content: Content, store: RunStore) -> Examined:
    """What the store knows from an earlier preflight of this run; nothing is asked."""
    asked = ((model, checks(model, plan, content, store.secret())) for model in plan.everybody)
    return _together(plan, [_conclude(model, _known(questions, store)) for model, questions in asked])


def _known(asked: Iterable[Check], store: RunStore) -> list[_Answer]:
    """The last answer to each question: of a judge's two tries the second, in whatever session it was asked."""
    return [_Answer(check, known.request, known.reply) for check in asked if (known := check.known(store))]


def run_preflight(plan: RunPlan, content: Content, store: RunStore, environ: Mapping[str, str]) -> Examined:
    """Ask every model what the store does not know yet.

    Raises:
        ConfigError: Some cannot be used in this run; the message tells all of them, with the remedies.
    """
    connections = Connections(plan, content, store, environ)

    async def examine(model: ModelPlan) -> _Conclusion:
        asked = list(checks(model, plan, content, store.secret()))
        if not asked:
            return _conclude(model, ())
        chat, once = (
            StoredChat(connections.connect(model, asked[0].suite, once=once), store) for once in (False, True)
        )
        # A budget that cannot hold one reply at the highest limit may hold the run.
        generous = model.kind == "remote" and plan.settings.max_cost is None
        examination = _Examination(model, content, store, environ, chat, once, generous)
        try:
            return await examination.examine(asked)
        finally:
            await chat.aclose()
            await once.aclose()

    async def everybody() -> list[_Conclusion | BaseException]:
        return await asyncio.gather(*map(examine, plan.everybody), return_exceptions=True)

    try:
        found = asyncio.run(everybody())
    finally:
        connections.close()
    for other in found:
        if isinstance(other, BaseException) and not isinstance(other, ConfigError):
            raise other
    if faults := [fault for fault in found if isinstance(fault, ConfigError)]:
        raise ConfigError("\n".join(dict.fromkeys(map(str, faults))), tuple(one for f in faults for one in f.replaced))
    return _together(plan, [each for each in found if not isinstance(each, BaseException)])


@dataclass(frozen=True)
class _Answer:
    check: Check
    request: ChatRequest
    reply: ChatReply

    @property
    def enforced(self) -> bool:
        """Whether the reply is what only the schema could have told."""
        with suppress(ValueError):
            answer = _JSON.loads(self.reply.text)
            return isinstance(answer, dict) and answer.get("reply") == _texts().token
        return False


@dataclass(frozen=True)
class _Conclusion:
    model: ModelPlan
    record: Preflight | None = None
    enforced: bool | None = None


def _together(plan: RunPlan, found: Sequence[_Conclusion]) -> Examined:
    enforcement = {each.model.spec: each.enforced for each in found if each.enforced is not None}
    for model in plan.models:
        if model.kind == "dry" and "schema" in plan.settings.prompting and "tempaffect" in model.params:
            # A built-in model answers as the schema says or, on purpose, does not.
            enforcement[model.spec] = True
    records = tuple(each.record for each in found if each.record is not None)
    changed = plan.model_copy(update={"everybody": tuple(each.model for each in found)})
    return Examined(changed, records, enforcement)


def _conclude(model: ModelPlan, answers: Sequence[_Answer]) -> _Conclusion:
    """How a model is to be asked, from its answers alone, so that a resumed run concludes the same from the store."""
    if not answers:
        return _Conclusion(model)
    negotiated: dict[SuiteName, dict[str, object]] = {}
    for answer in answers:
        suite = answer.check.suite
        sent, longest = dict(answer.request.params), token_limit(negotiated.get(suite, {}))
        if limit := token_limit(sent):
            sent[limit.name] = max(_fitting(model, answer, limit.value), longest.value if longest else 0)
        negotiated[suite] = sent
    negotiated = {suite: sent for suite, sent in negotiated.items() if sent != model.params[suite]}
    schemas = [answer for answer in answers if answer.check.schema is not None]
    schemaless = any(answer.request.schema is None for answer in schemas)
    enforced = next((answer.enforced for answer in schemas if answer.check.way == "schema"), None)
    changed = model.model_copy(update={"negotiated": negotiated, "schemaless": schemaless})
    notes = [*_notes(answers), *(["the endpoint does not enforce JSON schemas"] if enforced is False else [])]
    record = Preflight(
        role=model.role,
        model=model.spec,
        changes=tuple(dict.fromkeys(_changes(changed))),
        notes=tuple(dict.fromkeys(notes)),
        completion_tokens=max(answer.reply.usage.completion_tokens for answer in answers),
        reasoning_tokens=max(answer.reply.usage.reasoning_tokens for answer in answers),
    )
    return _Conclusion(changed, record, enforced)


def _fitting(model: ModelPlan, answer: _Answer, asked: int) -> int:
    """The limit for replies like this one: the configured one, raised as far as it needs. asked: the limit it had."""
    reply, suite = answer.reply, answer.check.suite
    # Where the endpoint counts nothing, a token has one character at least.
    used = reply.usage.completion_tokens or len(reply.text) + len(reply.reasoning or "")
    thinks = bool(reply.reasoning or reply.usage.reasoning_tokens)
    configured = token_limit(model.params[suite])
    least = min(asked, configured.value) if configured else asked
    fitting = raised(least, model.freedom[suite], _HEADROOM * used if thinks else used)
    # The highest limit that the endpoint granted.
    return min(fitting, asked) if asked > least else fitting


def _changes(model: ModelPlan) -> Iterator[str]:
    for suite, sent in model.negotiated.items():
        params = model.params[suite]
        before, after = token_limit(params), token_limit(sent)
        if before != after:
            yield f"{before} is sent as {after}"
        yield from (f"{name} is left out" for name in params if name not in (*sent, *TOKEN_LIMITS))
    if model.schemaless:
        yield "JSON schemas are left out"


def _notes(answers: Sequence[_Answer]) -> Iterator[str]:
    for answer in answers:
        reply = answer.reply
        if reply.reasoning:
            yield "reasoning comes with replies and is kept apart"
        if not reply.usage.prompt_tokens and not reply.usage.completion_tokens:
            yield "the endpoint counts no tokens: costs are not known, and --max-cost books each call at its worst case"
        if reply.finish == "length":
            yield f"the reply was cut off at {token_limit(answer.request.params)}, the limit in spiral.toml"


@dataclass
class _Examination:
    """The questions to one model, and what its endpoint has been found to want.

    once: asks without trying again. generous: whether to ask with the highest limit. A reply is paid by its length, so
    one shows at the usual price how much room the model needs, or that no limit is enough.
    """

    model: ModelPlan
    content: Content
    store: RunStore
    environ: Mapping[str, str]
    chat: StoredChat
    once: StoredChat
    generous: bool
    listed: frozenset[str] | None = None
    dropped: set[str] = field(default_factory=set)
    limit_name: str = ""
    most: int | None = None
    schemaless: bool = False

    async def examine(self, asked: Sequence[Check]) -> _Conclusion:
        """Raises `ConfigError` with what is to be done."""
        for check in asked:
            known = next(iter(_known([check], self.store)), None)
            if known is None or await self._fault(known) is not None:
                if self.listed is None and self.model.kind == "remote":
                    try:
                        self.listed = await list_models(endpoint_of(self.model, self.environ))
                    except ChatError as error:
                        raise unusable(self.model, error, self.content.folder, self.environ, self.listed) from None
                answer = await self._ask(check, known.request.sample + 1 if known else 0)
                if (fault := await self._fault(answer)) is not None:
                    raise fault
        return _conclude(self.model, _known(asked, self.store))

    async def _ask(self, check: Check, sample: int) -> _Answer:
        freedom = self.model.freedom[check.suite]
        generous = self.generous and not freedom.fixed_limit
        least = freedom.most_tokens if generous else 0
        while True:
            params, own = self._adapted(self.model.params[check.suite]), 0
            if limit := token_limit(params):
                params[limit.name] = max(limit.value, min(least, self.most or least))
                own = limit.value if generous and params[limit.name] != limit.value else 0
            request = check.request(params, sample, schemaless=self.schemaless)
            try:
                reply = await (self.once if own else self.chat).complete(request)
            except ChatError as error:
                if error.refusal is not None and self._concedes(check, error.refusal, own):
                    continue
                named = error.refusal.parameter if error.refusal is not None else ""
                if own and error.code is not ReasonCode.AUTH and named in ("", *TOKEN_LIMITS):
                    # Small contexts, little credit, rate limits that count the limit as used: the run's own may do.
                    self.generous = generous = False
                    self.limit_name, least = "", 0
                    continue
                if error.code is ReasonCode.BUDGET:
                    more = f"--max-cost={10 * (self.content.settings.max_cost or 0.0):g}"
                    raise ConfigError(str(error), (("", more),)) from None
                raise unusable(self.model, error, self.content.folder, self.environ, self.listed) from None
            sent = token_limit(request.params)
            if reply.finish == "length" and sent is not None:
                least = raised(sent.value, freedom, sent.value + 1)
                if least > sent.value and least <= (self.most or least):
                    continue
            return _Answer(check, request, reply)

    def _adapted(self, params: Mapping[str, object]) -> dict[str, object]:
        """The parameters as the endpoint wants them, as far as that is known."""
        sent = {name: value for name, value in params.items() if name not in self.dropped}
        if limit := token_limit(sent):
            del sent[limit.name]
            sent[self.limit_name or limit.name] = min(limit.value, self.most or limit.value)
        return sent

    def _concedes(self, check: Check, refusal: RefusedRequest, least: int) -> bool:
        """Change what the endpoint refuses, unless it was chosen, or a measurement would be another one without it.

        least: a token limit that has not been refused yet."""
        name, chosen = refusal.parameter, self.model.freedom[check.suite].chosen
        if name == "response_format":
            before, self.schemaless = self.schemaless, self.model.role in ("judge", "reply_judge")
            return self.schemaless and not before
        if name in TOKEN_LIMITS and refusal.most is not None:
            most = max(refusal.most, least)
            lower = self.most is None or most < self.most
            self.most = most
            return lower and set(TOKEN_LIMITS).isdisjoint(chosen)
        if name in TOKEN_LIMITS:
            before_name, self.limit_name = self.limit_name, refusal.instead
            return not before_name
        if name in chosen or name not in self.model.params[check.suite]:
            return False
        self.dropped.add(name)
        return True

    async def _fault(self, answer: _Answer) -> ConfigError | None:
        """Why the run cannot do with replies like this one, None where it can."""
        model, reply, reason = self.model, answer.reply, None
        fixed = model.freedom[answer.check.suite].fixed_limit
        if reply.finish == "length" and model.kind == "remote":
            # What somebody has fixed is theirs to judge.
            reason = None if fixed and model.role == "evaluated" else cut_off(answer.request, reply)
        elif not reply.text.strip() and reply.finish == "stop":
            reason = "the reply is empty"
        elif answer.check.way == "judgement":
            reason = await self._unreadable(answer)
        return unusable_reply(model, reason, answer.request, reply, self.content.folder) if reason else None

    async def _unreadable(self, answer: _Answer) -> str | None:
        """Why a judgement cannot be read. Judges get a second try, as in the run."""
        request, spiral = answer.request, self.content.spiral
        longest, takes_schemas = self.model.longest_string, request.schema is not None
        params = json.loads(json.dumps(dict(request.params)))
        who = Participant(self.model.role, request.model, self.chat, params, longest, takes_schemas)
        judged: ChunkJudgement | ReplyJudgement
        if self.model.role == "reply_judge":
            judged = await ModelRater(who, self.store.secret()).rate(answer.check.unit, _reply())
        else:
            judge = spiral.setting.judge(who, spiral.protocol, self.store.secret())
            judged = await judge.chunk(answer.check.unit, _texts().conversation[0].content, _chunk(self.content))
        return None if judged.status is Status.MEASURED else f"its judgement cannot be read ({judged.reason})"
