"""One conversation as a unit of work: turns one after another, judging as soon as there is something to judge."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from pytest_spiral.chat import ChatReply, ChatRequest, Message, Role
from pytest_spiral.errors import ChatError
from pytest_spiral.spiral.chunks import Chunk, chunk_transcript
from pytest_spiral.spiral.consensus import worse_chunk, worse_final
from pytest_spiral.spiral.content import INJECTIONS_FILE, PERSONA_FILE, Actor, Opening, Rubric
from pytest_spiral.spiral.evidence import Reply
from pytest_spiral.spiral.judging import FINISH_CODES, Rejected, parse_final_reply, parse_judge_reply
from pytest_spiral.spiral.prompting import (
    Heard,
    chunk_messages,
    chunk_schema,
    final_messages,
    final_schema,
)
from pytest_spiral.spiral.protocol import Protocol as ScoringProtocol
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Origin, Retest
from pytest_spiral.spiral.schedule import injection_schedule
from pytest_spiral.spiral.simulator import Watch, load_limits
from pytest_spiral.spiral.suspicion import without_suspicions
from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.store import StoredChat
from pytest_spiral.text import whole_characters

__all__ = ["ConversationUnit", "Judge", "ModelJudge", "Speaker", "Table", "converse", "judge_again"]

T = TypeVar("T")
# A reply that cannot be used is asked for once more; on resume, as often again.
_TRIES_PER_SESSION = 2
_MOST_SAMPLES = 20
_NOTHING = "(nothing)"
# How long a chunk waits for the turns that came in with its own to be answered.
_GIVE_WAY_SECONDS = 0.02
# Room for the indexes of a prompt's conversations between one sample of the user model and the next.
_STRIDE = 1_000_000


@dataclass(frozen=True, slots=True)
class ConversationUnit:
    """One conversation of one model on one prompt. index: counted from 0."""

    model: str
    prompt_id: str
    index: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.index < _STRIDE:
            raise ValueError(f"index: must lie in 0..{_STRIDE - 1}, got {self.index}")

    @property
    def id(self) -> str:
        """The part of the node id in brackets."""
        return f"{self.model}-{self.prompt_id}-{self.index + 1}"


@dataclass(frozen=True)
class Speaker:
    """A model in a role, with its parameters."""

    role: Role
    model: str
    chat: StoredChat
    params: Mapping[str, Any] = field(default_factory=dict)
    longest: int | None = None
    """Bound on strings of enforced JSON, for models that do not stop by themselves; None for none."""

    def request(
        self, messages: Sequence[Message], unit: str, sample: int, schema: Mapping[str, Any] | None = None
    ) -> ChatRequest:
        """What the model is asked."""
        return ChatRequest(self.role, self.model, tuple(messages), self.params, schema, sample, unit)

    async def say(self, request: ChatRequest) -> ChatReply:
        """The model's reply. Raises `ChatError` and `StoreError`."""
        reply = await self.chat.complete(request)
        # Half of a surrogate pair is no text: neither a next request nor a record can hold it.
        text = whole_characters(reply.text)
        return reply if text == reply.text else replace(reply, text=text)

    def has_said(self, request: ChatRequest) -> bool:
        """Whether the reply is in the store already."""
        return self.chat.is_stored(request)


class Judge(Protocol):
    """Whoever labels what the assistant did."""

    @property
    def name(self) -> str:
        """How findings name this judge."""
        ...

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        """Judge one chunk. Raises nothing for a failing instrument: the judgement says so."""
        ...

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        """Judge a whole conversation."""
        ...

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        """Judge a chunk once more in the same and once in another order of the behaviours."""
        ...


@dataclass(frozen=True)
class ModelJudge:
    """A language model as judge: strict JSON, one re-ask, and never a zero for a reply that cannot be read.

    What looks as if it spoke to the judge is judged twice, as it is and with those passages blanked; the worse counts.
    """

    speaker: Speaker
    rubric: Rubric
    protocol: ScoringProtocol
    secret: str

    @property
    def name(self) -> str:
        return self.speaker.model

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        first = await self._chunk(conversation, opening, chunk, chunk)
        blanked = chunk.blanked
        if blanked == chunk:
            return first
        second = await self._chunk(conversation, without_suspicions(opening), blanked, chunk)
        return worse_chunk(first, second, self._risky)

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        again = await self._chunk(conversation, opening, chunk, chunk, first_sample=_MOST_SAMPLES)
        rubric = self.rubric.reordered(f"{conversation}-{chunk.index}")
        other = await self._chunk(conversation, opening, chunk, chunk, rubric=rubric)
        return Retest("again", again), Retest("reordered", other)

    async def _chunk(
        self,
        conversation: str,
        opening: str,
        shown: Chunk,
        said: Chunk,
        *,
        rubric: Rubric | None = None,
        first_sample: int = 0,
    ) -> ChunkJudgement:
        behaviours = self.protocol.behaviours
        asked = tuple(name for name in rubric.behaviours if name in behaviours) if rubric else tuple(behaviours)
        messages = chunk_messages(rubric or self.rubric, opening, shown, self.secret)
        schema = chunk_schema(asked, longest=self.speaker.longest)
        found, reply = await self._ask(
            conversation,
            messages,
            schema,
            lambda r: parse_judge_reply(
                r.text,
                behaviours,
                said.replies,
                heard=(Reply(0, opening), *said.heard),
                judge=self.name,
                finish=r.finish,
            ),
            first_sample,
        )
        base = ChunkJudgement(shown.index, shown.turns, self.name, chars=float(shown.chars), raw_text=reply)
        if isinstance(found, Rejected):
            return replace(base, status=_status(found), reason=found.reason)
        return replace(base, behaviours=tuple(behaviours), findings=found)

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        first = await self._final(conversation, transcript)
        blanked = [replace(message, content=without_suspicions(message.content)) for message in transcript]
        if blanked == list(transcript):
            return first
        return worse_final(first, await self._final(conversation, blanked), self._risky)

    async def _final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        metrics = self.protocol.finals
        messages = final_messages(self.rubric, transcript, self.secret)
        schema = final_schema(tuple(metrics), longest=self.speaker.longest)
        found, reply = await self._ask(
            conversation, messages, schema, lambda r: parse_final_reply(r.text, metrics, finish=r.finish)
        )
        if isinstance(found, Rejected):
            return FinalJudgement(self.name, _status(found), found.reason, {}, reply)
        return FinalJudgement(self.name, scores={k: float(v) for k, v in found.items()}, raw_text=reply)

    @property
    def _risky(self) -> frozenset[str]:
        return frozenset(name for name, metric in self.protocol.metrics.items() if metric.sign == "risky")

    async def _ask(
        self,
        unit: str,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        parse: Callable[[ChatReply], T | Rejected],
        first_sample: int = 0,
    ) -> tuple[T | Rejected, str]:
        """Ask, and ask once more in view of a reply that cannot be read.

        Stored replies that could not be read do not count against this session: a resumed run tries anew.
        """
        for sample in range(first_sample, first_sample + _MOST_SAMPLES):
            request = self.speaker.request(messages, unit, sample, schema)
            known = self.speaker.has_said(request)
            try:
                reply = await self.speaker.say(request)
            except ChatError as error:
                return Rejected(error.reason()), ""
            found = parse(reply)
            if not isinstance(found, Rejected):
                return found, reply.text
            # Some endpoints refuse a message without words.
            spoiled = Message("assistant", reply.text if reply.text.strip() else _NOTHING)
            again = [*messages, spoiled, Message("user", self.rubric.asides.repair)]
            request = self.speaker.request(again, unit, sample, schema)
            repaired = self.speaker.has_said(request)
            try:
                reply = await self.speaker.say(request)
            except ChatError as error:
                if known:
                    # It may be the spoiled reply itself that cannot be sent back; another sample gets round it.
                    continue
                return Rejected(error.reason()), ""
            found = parse(reply)
            if not isinstance(found, Rejected) or not (known and repaired):
                return found, reply.text
        return Rejected(Reason(ReasonCode.NOT_JSON, f"no readable reply in {_MOST_SAMPLES} samples")), ""


def _status(rejected: Rejected) -> Status:
    return Status.NOT_RUN if rejected.reason.code is ReasonCode.BUDGET else Status.INSTRUMENT_FAILED


@dataclass(frozen=True)
class Table:
    """Everything a conversation needs besides its opening: who speaks, who judges, by which rules.

    seed: of the injection schedule. turns: replies of the evaluated model. system: its system prompt, None for none.
    prompt_file: name of the file that the opening comes from. retest_share: percent of the chunks that are judged
    once more.
    """

    evaluated: Speaker
    user: Speaker
    judges: Sequence[Judge]
    actor: Actor
    protocol: ScoringProtocol
    seed: int | str
    turns: int
    system: str | None = None
    prompt_file: str = ""
    retest_share: int = 0


class _Cut(Exception):
    """The conversation cannot go on."""

    def __init__(self, status: Status, reason: Reason) -> None:
        super().__init__(str(reason))
        self.status = status
        self.reason = reason


async def converse(unit: ConversationUnit, opening: Opening, table: Table) -> Conversation:
    """Hold and judge one conversation.

    A call that fails for good leaves an `instrument_failed` conversation with its transcript so far; with the store it
    is taken up at that very call. The user model is not asked for a message that nobody would answer. Where the user
    model falls apart the conversation is given up and simulated again from the start, as often in all as
    `simulator.toml` allows; after that it is `instrument_failed`. Resumed, it takes the same course.
    """
    given_up: list[Reason] = []
    for simulation in range(load_limits().resimulation.simulations):
        talk = _Talk(unit, opening, table, simulation)
        held = replace(await _hold(talk), given_up=tuple(given_up))
        if talk.collapse is None:
            break
        given_up.append(Reason(ReasonCode.SIMULATOR_COLLAPSED, talk.collapse))
    return held


async def _hold(talk: _Talk) -> Conversation:
    status: Status = Status.MEASURED
    reason: Reason | None = None
    try:
        async with asyncio.TaskGroup() as judging:
            try:
                await talk.hold(judging)
            except _Cut as cut:
                status, reason = cut.status, cut.reason
                if talk.collapse is not None:
                    await talk.stop()
        finals: Sequence[FinalJudgement] = ()
        if status is Status.MEASURED:
            judges = talk.table.judges
            finals = await asyncio.gather(*(judge.final(talk.name, talk.transcript) for judge in judges))
    finally:
        await talk.stop()
    # Whose judgement came in before a collapse is chance.
    judged = [task.result() for task in talk.judging] if talk.collapse is None else []
    retested = [retest for task in talk.retesting for retest in task.result()] if talk.collapse is None else []
    record = Conversation(
        prompt_id=talk.opening.prompt_id,
        twin_of=talk.opening.twin_of or "",
        category=talk.opening.category,
        model=talk.unit.model,
        index=talk.unit.index,
        status=status,
        reason=reason,
        prompts=talk.opening.prompts,
        # Without what requests were made of, which is longer than the text.
        transcript=tuple(Message(message.role, message.content) for message in talk.transcript),
        injections_log=tuple(talk.injections_log),
        judgements=tuple(sorted(judged, key=lambda judgement: (judgement.index, judgement.judge))),
        finals=tuple(finals),
        retests=tuple(sorted(retested, key=_order)),
        origin=Origin(
            prompt_file=talk.table.prompt_file,
            instruction_file=PERSONA_FILE,
            injection_file=INJECTIONS_FILE,
            user_model=talk.table.user.model,
            user_system_prompt=talk.table.actor.part(talk.opening.category),
            evaluated_system_prompt=talk.table.system or "",
        ),
    )
    return _unless_unpaid(record)


def is_retested(seed: int | str, conversation: str, chunk: int, share: int) -> bool:
    """Whether a chunk is among the percent that are judged once more: the same in every session of a run."""
    if share == 0:
        return False
    digits = hashlib.sha256(f"{seed}-retest-{conversation}-{chunk}".encode()).digest()
    return int.from_bytes(digits[:4], "big") % 100 < share


def _order(retest: Retest) -> tuple[int, str, str]:
    return retest.judgement.index, retest.judgement.judge, retest.how


def _unless_unpaid(talk: Conversation) -> Conversation:
    """The conversation, or, where the budget forbade a call that it needed, none: resuming takes it up at that call."""
    judgements: list[ChunkJudgement | FinalJudgement] = [*talk.judgements, *talk.finals]
    unpaid = [judgement.reason for judgement in judgements if judgement.status is Status.NOT_RUN]
    if talk.status is not Status.NOT_RUN and not unpaid:
        return talk
    reason = talk.reason if talk.status is Status.NOT_RUN else unpaid[0]
    return Conversation(
        talk.prompt_id, talk.category, talk.model, talk.index, Status.NOT_RUN, reason, twin_of=talk.twin_of
    )


async def judge_again(
    talk: Conversation, protocol: ScoringProtocol, judges: Sequence[Judge], seed: int | str = 1, retest_share: int = 0
) -> Conversation:
    """A recorded conversation with new judgements; its own are dropped. One that was not measured stays as it is.

    seed, retest_share: as in `Table`.
    """
    if talk.status is not Status.MEASURED:
        return replace(talk, judgements=(), finals=(), retests=())
    name = f"{talk.prompt_id}-{talk.index}"
    opening = talk.transcript[0].content
    chunks = chunk_transcript(talk.transcript, protocol)
    sampled = [chunk for chunk in chunks if is_retested(seed, name, chunk.index, retest_share)]
    judgements, finals, retests = await asyncio.gather(
        asyncio.gather(*(judge.chunk(name, opening, chunk) for chunk in chunks for judge in judges)),
        asyncio.gather(*(judge.final(name, talk.transcript) for judge in judges)),
        asyncio.gather(*(judge.retest(name, opening, chunk) for chunk in sampled for judge in judges)),
    )
    ordered = sorted(judgements, key=lambda judgement: (judgement.index, judgement.judge))
    firm = sorted((retest for pair in retests for retest in pair), key=_order)
    return _unless_unpaid(replace(talk, judgements=tuple(ordered), finals=tuple(finals), retests=tuple(firm)))


class _Talk:
    def __init__(self, unit: ConversationUnit, opening: Opening, table: Table, simulation: int) -> None:
        self.unit = unit
        self.opening = opening
        self.table = table
        self.name = f"{unit.prompt_id}-{unit.index}"
        self.transcript: list[Message] = []
        self._heard = Heard(table.actor.part(opening.category))
        self.injections_log: list[str] = []
        self.judging: list[asyncio.Task[ChunkJudgement]] = []
        self.retesting: list[asyncio.Task[Sequence[Retest]]] = []
        self._simulation = simulation
        self._watch = Watch("shipped")
        self._judged = 0
        scripted = [*opening.prompts[1 : table.turns], *[None] * (table.turns - len(opening.prompts))]
        self._scripted: Sequence[str | None] = scripted[: max(0, table.turns - 1)]
        generated = [text is None for text in self._scripted]
        self._injections = injection_schedule(
            table.seed, opening.prompt_id, unit.index, generated, table.actor.injections
        )
        self._add(Message("user", opening.first))

    @property
    def collapse(self) -> str | None:
        """Why the user model plays no longer, None while it does."""
        return self._watch.collapse

    async def hold(self, judging: asyncio.TaskGroup) -> None:
        for turn in range(self.table.turns):
            self._add(Message("assistant", await self._reply(turn)))
            self._start_judges(judging, last=turn == self.table.turns - 1)
            if turn < len(self._scripted):
                injection = self._injections[turn]
                script = self._scripted[turn]
                text = script or await self._user_turn(turn, injection)
                self._add(Message("user", text), injection or "", generated=not script)
                if self.collapse is not None:
                    collapsed = Reason(ReasonCode.SIMULATOR_COLLAPSED, self.collapse)
                    raise _Cut(Status.INSTRUMENT_FAILED, collapsed)

    def _add(self, message: Message, injection: str = "", *, generated: bool = False) -> None:
        self.transcript.append(message)
        self._heard.add(message)
        self.injections_log.append(injection)
        if message.role == "user":
            self._watch.user(message.content, generated=generated)
        else:
            self._watch.assistant(message.content)

    async def _reply(self, turn: int) -> str:
        system = [Message("system", self.table.system)] if self.table.system else []
        request = self.table.evaluated.request([*system, *self.transcript], self.name, self.unit.index)
        try:
            reply = await self.table.evaluated.say(request)
        except ChatError as error:
            raise _Cut(error.unit_status, error.reason(f"evaluated model, turn {turn + 1}")) from None
        if reply.finish == "length":
            cut = f"turn {turn + 1}: the reply was cut off by the token limit; raise max_tokens in spiral.toml"
            raise _Cut(Status.MODEL_FAILED, Reason(ReasonCode.TRUNCATED, cut))
        if not reply.text.strip():
            code = FINISH_CODES.get(reply.finish, ReasonCode.EMPTY_REPLY)
            raise _Cut(Status.MODEL_FAILED, Reason(code, f"turn {turn + 1}: the reply is empty"))
        return reply.text

    async def _user_turn(self, turn: int, injection: str | None) -> str:
        messages = self._heard.messages(injection)
        index = self.unit.index
        fresh = 0
        for attempt in range(_MOST_SAMPLES):
            # No two conversations on a prompt, simulations of one or attempts at a message share a sample.
            sample = index + _STRIDE * (attempt + _MOST_SAMPLES * self._simulation)
            request = self.table.user.request(messages, self.name, sample)
            fresh += not self.table.user.has_said(request)
            try:
                reply = await self.table.user.say(request)
            except ChatError as error:
                raise _Cut(error.unit_status, error.reason(f"simulated user, turn {turn + 1}")) from None
            if reply.finish == "stop" and reply.text.strip():
                return reply.text.strip()
            if fresh >= _TRIES_PER_SESSION:
                break
        ended = FINISH_CODES.get(reply.finish, ReasonCode.EMPTY_REPLY)
        unusable = Reason(ReasonCode.NO_USER_MESSAGE, f"simulated user, turn {turn + 1}: {ended.value}")
        raise _Cut(Status.INSTRUMENT_FAILED, unusable)

    def _start_judges(self, judging: asyncio.TaskGroup, *, last: bool) -> None:
        """Every chunk that is whole goes to the judges at once; the last one may be shorter."""
        protocol = self.table.protocol
        chunks = chunk_transcript(self.transcript, protocol, first=self._judged)
        whole = [chunk for chunk in chunks if len(chunk.exchanges) == protocol.chunk_size or last]
        for chunk in whole:
            for judge in self.table.judges:
                self.judging.append(judging.create_task(self._judge(judge, chunk)))
                if is_retested(self.table.seed, self.name, chunk.index, self.table.retest_share):
                    self.retesting.append(judging.create_task(self._retest(judge, chunk)))
        self._judged += len(whole)

    async def _judge(self, judge: Judge, chunk: Chunk) -> ChunkJudgement:
        if chunk.turns[-1] < self.table.turns - 1:
            # Turns go first: conversations wait for them, nobody waits for this.
            await asyncio.sleep(_GIVE_WAY_SECONDS)
        return await judge.chunk(self.name, self.opening.first, chunk)

    async def _retest(self, judge: Judge, chunk: Chunk) -> Sequence[Retest]:
        return await judge.retest(self.name, self.opening.first, chunk)

    async def stop(self) -> None:
        """Nothing of this conversation goes on in the background."""
        tasks = [*self.judging, *self.retesting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
