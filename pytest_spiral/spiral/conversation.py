"""One conversation as a unit of work: turn after turn, each chunk judged as soon as it is complete."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_spiral.chat import Message, whose_limit
from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.spiral.chunks import Chunk, chunk_transcript
from pytest_spiral.spiral.content import BENIGN_TWIN, OpeningPrompt
from pytest_spiral.spiral.judges import Judge
from pytest_spiral.spiral.judging import FINISH_CODES, MAX_REPLY_CHARS
from pytest_spiral.spiral.prompting import Participant
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import (
    Abandoned,
    Beginning,
    ChunkJudgement,
    Conversation,
    FinalJudgement,
    Origin,
    Retest,
)
from pytest_spiral.spiral.schedule import TurnNote
from pytest_spiral.spiral.setting import Setting
from pytest_spiral.spiral.simulator import SimulatorMonitor, load_limits
from pytest_spiral.status import Reason, ReasonCode, Status

# An unusable message of the simulated user is asked for once more; on resume, as often again, up to the maximum.
_TRIES_PER_SESSION = 2
_MAX_SAMPLES = 20
# Samples of the simulated user are numbered so that those of different conversations on a prompt never meet.
_SAMPLE_STRIDE = 1_000_000


@dataclass(frozen=True, slots=True)
class ConversationUnit:
    """One conversation of the evaluated model on one prompt. index: which of those on this prompt, from 0."""

    model: str
    prompt_id: str
    index: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.index < _SAMPLE_STRIDE:
            raise ValueError(f"index: expected 0..{_SAMPLE_STRIDE - 1}, got {self.index}")

    @property
    def id(self) -> str:
        """The part of the node id in brackets."""
        return f"{self.model}-{self.prompt_id}-{self.index + 1}"


@dataclass(frozen=True)
class ConversationSetup:
    """Everything a conversation needs besides its opening.

    user: None where no message is to be written. seed: of the injection schedule and of the chunks to judge again.
    turns: replies of the evaluated model. system: its system prompt. prompt_file: name of the file the opening comes
    from. retest_percent: percentage of chunks, 0..100, to judge again.
    """

    evaluated: Participant
    user: Participant | None
    judges: Sequence[Judge]
    setting: Setting
    protocol: Protocol
    seed: int | str
    turns: int
    system: str | None = None
    prompt_file: str = ""
    retest_percent: int = 0


async def converse(unit: ConversationUnit, opening: OpeningPrompt, setup: ConversationSetup) -> Conversation:
    """Hold and judge one conversation.

    A call that fails for good leaves an `instrument_failed` conversation with its transcript so far; a resumed run
    continues at that call. The simulated user is not asked for a message that nobody would answer. When it stops
    playing its role, the conversation starts again, as often in all as `simulator.toml` allows; after that it is
    `instrument_failed`. What the evaluated model said in abandoned attempts is judged and kept: its replies may have
    driven the user out of its role. A resumed run takes the same course. In an exact setting a conversation goes on to
    its end, is judged, and is `instrument_failed` then.
    """
    given_up: list[Reason] = []
    abandoned: list[Abandoned] = []
    for number in range(1 if setup.setting.exact else load_limits().resimulation.simulations):
        simulation = _Simulation(unit, opening, setup, number)
        try:
            held = await simulation.run()
        except ExceptionGroup as group:
            # One error has cancelled everything else that was under way: callers know it by its own type.
            raise group.exceptions[0] from None
        conversation = replace(held, given_up=tuple(given_up), abandoned=tuple(abandoned))
        if simulation.collapse is None or held.status is Status.NOT_RUN:
            break
        given_up.append(simulation.collapse)
        abandoned.append(Abandoned(held.transcript, held.judgements))
    return conversation


class _Stopped(Exception):
    """The conversation cannot go on."""

    def __init__(self, status: Status, reason: Reason) -> None:
        super().__init__(str(reason))
        self.status = status
        self.reason = reason


class _Simulation:
    """One attempt at a conversation, from the opening on."""

    def __init__(self, unit: ConversationUnit, opening: OpeningPrompt, setup: ConversationSetup, number: int) -> None:
        self._unit = unit
        self._opening = opening
        self._setup = setup
        self._number = number
        self._name = f"{unit.prompt_id}-{unit.index}"
        self._exact = setup.setting.exact
        self._system_prompt = setup.setting.system_prompt(BENIGN_TWIN if opening.twin_of else opening.category)
        self._history = opening.beginning.history if opening.beginning else ()
        self._transcript: list[Message] = []
        self._injections_log: list[str] = []
        self._user_prompt = setup.setting.user_prompt(self._system_prompt)
        self._monitor = SimulatorMonitor("imported" if self._exact else "shipped")
        self._judging: list[asyncio.Task[ChunkJudgement]] = []
        self._retesting: list[asyncio.Task[Sequence[Retest]]] = []
        self._chunks_judged = 0
        # Scripted user messages after the opening, None for those to generate. None follows the last reply.
        answered = setup.turns - (not self._exact)
        self._script = [*opening.prompts[1:], *[None] * answered][:answered]
        generated = [text is None for text in self._script]
        self._notes = setup.setting.schedule(setup.seed, opening, unit.index, generated)
        self._add(Message("user", opening.first))

    @property
    def collapse(self) -> Reason | None:
        """Why the simulated user no longer plays its role; None while it does."""
        collapse = self._monitor.collapse
        return None if collapse is None else Reason(ReasonCode.SIMULATOR_COLLAPSED, collapse)

    async def run(self) -> Conversation:
        """Hold the conversation, judging while it goes on."""
        status, reason = Status.MEASURED, None
        finals: Sequence[FinalJudgement] = ()
        async with asyncio.TaskGroup() as background:
            try:
                await self._hold(background)
            except _Stopped as stopped:
                status, reason = stopped.status, stopped.reason
                if self.collapse is not None and not self._exact:
                    # Of a chunk of several replies, those that there are.
                    self._start_judging(background, is_last=True)
        if status is Status.MEASURED:
            finals = await _finals(self._setup.protocol, self._setup.judges, self._name, self._transcript)
            if self.collapse is not None:
                status, reason = Status.INSTRUMENT_FAILED, self.collapse
        opening, setup = self._opening, self._setup
        conversation = Conversation(
            prompt_id=opening.prompt_id,
            twin_of=opening.twin_of or "",
            category=opening.category,
            model=self._unit.model,
            index=self._unit.index,
            status=status,
            reason=reason,
            prompts=opening.prompts,
            transcript=tuple(self._transcript),
            injections_log=tuple(self._injections_log),
            origin=Origin(
                prompt_file=setup.prompt_file,
                instruction_file=setup.setting.persona_file(opening.category),
                injection_file=setup.setting.injection_file,
                user_model=setup.user.model if setup.user else "",
                user_system_prompt=self._system_prompt,
                evaluated_system_prompt=setup.system or "",
                judges=tuple(judge.name for judge in setup.judges) if self._exact else (),
            ),
            beginning=opening.beginning,
        )
        judgements = [task.result() for task in self._judging]
        return _judged(conversation, judgements, finals, [task.result() for task in self._retesting])

    async def _hold(self, background: asyncio.TaskGroup) -> None:
        last = self._setup.turns - 1
        for turn in range(self._setup.turns):
            self._add(Message("assistant", await self._assistant_turn(turn)))
            self._start_judging(background, is_last=turn == last)
            if turn < len(self._script):
                scripted, note = self._script[turn], self._notes[turn]
                text = scripted or await self._user_turn(turn, note)
                self._add(Message("user", text), note.injection if note else "", generated=not scripted)
                if self.collapse is not None and not self._exact:
                    raise _Stopped(Status.INSTRUMENT_FAILED, self.collapse)

    def _add(self, message: Message, injection: str = "", *, generated: bool = False) -> None:
        self._transcript.append(message)
        self._injections_log.append(injection)
        self._user_prompt.add(message)
        if message.role == "user":
            self._monitor.add_user_message(message.content, generated=generated)
        else:
            self._monitor.add_reply(message.content)

    async def _assistant_turn(self, turn: int) -> str:
        model, where = self._setup.evaluated, f"turn {turn + 1}"
        system = [Message("system", self._setup.system)] if self._setup.system else []
        try:
            reply = await model.reply(
                model.request([*system, *self._history, *self._transcript], self._name, self._unit.index)
            )
        except ChatError as error:
            raise _Stopped(error.unit_status, error.reason(f"evaluated model, {where}")) from None
        if reply.finish == "length" and not self._exact:
            detail = f"{where}: {whose_limit(reply.text, model.params)}"
            raise _Stopped(Status.MODEL_FAILED, Reason(ReasonCode.TRUNCATED, detail))
        if len(reply.text) > MAX_REPLY_CHARS:
            detail = f"{where}: {len(reply.text):,} characters, the limit is {MAX_REPLY_CHARS:,}"
            raise _Stopped(Status.MODEL_FAILED, Reason(ReasonCode.REPLY_TOO_LONG, detail))
        filtered = reply.finish == "content_filter" and not self._exact
        if filtered or not reply.text.strip():
            code = FINISH_CODES.get(reply.finish, ReasonCode.EMPTY_REPLY)
            what = "broken off" if reply.text.strip() else "empty"
            raise _Stopped(Status.MODEL_FAILED, Reason(code, f"{where}: the reply is {what}"))
        return reply.text

    async def _user_turn(self, turn: int, note: TurnNote | None) -> str:
        model, where = self._setup.user, f"simulated user, turn {turn + 1}"
        if model is None:
            raise ConfigError("this run has no simulated user: in --suite spiral-prefix a conversation has one turn")
        messages = self._user_prompt.messages(note.text if note else None)
        tries = 0
        for attempt in range(_MAX_SAMPLES):
            # Conversations on a prompt, simulations of one and attempts at a message all use different samples.
            sample = self._unit.index + _SAMPLE_STRIDE * (attempt + _MAX_SAMPLES * self._number)
            request = model.request(messages, self._name, sample)
            try:
                reply = await model.reply(request)
            except ChatError as error:
                raise _Stopped(error.unit_status, error.reason(where)) from None
            usable = reply.text.strip() and len(reply.text) <= MAX_REPLY_CHARS
            if usable and self._exact:
                return reply.text
            if usable and reply.finish == "stop":
                return reply.text.strip()
            tries += not reply.stored
            if tries >= _TRIES_PER_SESSION:
                break
        too_long = len(reply.text) > MAX_REPLY_CHARS
        code = ReasonCode.REPLY_TOO_LONG if too_long else FINISH_CODES.get(reply.finish, ReasonCode.EMPTY_REPLY)
        reason = Reason(ReasonCode.NO_USER_MESSAGE, f"{where}: {code.value}")
        raise _Stopped(Status.INSTRUMENT_FAILED, reason)

    def _start_judging(self, background: asyncio.TaskGroup, *, is_last: bool) -> None:
        """Judge every chunk that became complete; the last one may be shorter than the others."""
        setup, opening = self._setup, (*self._history, Message("user", self._opening.first))[0].content
        chunks = chunk_transcript(self._transcript, setup.protocol, first=self._chunks_judged, history=self._history)
        complete = [chunk for chunk in chunks if is_last or len(chunk.exchanges) == setup.protocol.chunk_size]
        for chunk in complete:
            retested = is_retested(setup.seed, self._name, chunk.index, setup.retest_percent)
            for judge in setup.judges:
                self._judging.append(background.create_task(judge.chunk(self._name, opening, chunk)))
                if retested:
                    self._retesting.append(background.create_task(judge.retest(self._name, opening, chunk)))
                if is_judged_alone(self._opening.prompt_id, self._opening.beginning):
                    self._retesting.append(background.create_task(_alone(judge, self._name, chunk)))
        self._chunks_judged += len(complete)


async def rejudge(
    conversation: Conversation,
    protocol: Protocol,
    judges: Sequence[Judge],
    seed: int | str = 1,
    retest_percent: int = 0,
) -> Conversation:
    """Replace the judgements of a recorded conversation. One that was not measured only loses those it has."""
    if conversation.status is not Status.MEASURED:
        unjudged = tuple(replace(held, judgements=()) for held in conversation.abandoned)
        return replace(conversation, judgements=(), finals=(), retests=(), abandoned=unjudged)
    name = f"{conversation.prompt_id}-{conversation.index}"
    opening = (*conversation.history, *conversation.transcript)[0].content
    chunks = chunk_transcript(conversation.transcript, protocol, history=conversation.history)
    alone = chunks if is_judged_alone(conversation.prompt_id, conversation.beginning) else ()
    retested = [chunk for chunk in chunks if is_retested(seed, name, chunk.index, retest_percent)]
    judgements, finals, retests = await asyncio.gather(
        asyncio.gather(*(judge.chunk(name, opening, chunk) for chunk in chunks for judge in judges)),
        _finals(protocol, judges, name, conversation.transcript),
        asyncio.gather(
            *(judge.retest(name, opening, chunk) for chunk in retested for judge in judges),
            *(_alone(judge, name, chunk) for chunk in alone for judge in judges),
        ),
    )
    abandoned = []
    for held in conversation.abandoned:
        parts = chunk_transcript(held.transcript, protocol)
        found = await asyncio.gather(*(judge.chunk(name, opening, chunk) for chunk in parts for judge in judges))
        abandoned.append(replace(held, judgements=tuple(found)))
    conversation = replace(conversation, abandoned=tuple(abandoned))
    if conversation.origin.judges:
        named = replace(conversation.origin, judges=tuple(judge.name for judge in judges))
        conversation = replace(conversation, origin=named)
    return _judged(conversation, judgements, finals, retests)


async def _finals(
    protocol: Protocol, judges: Sequence[Judge], name: str, transcript: Sequence[Message]
) -> Sequence[FinalJudgement]:
    """Nobody is asked for the scores of a protocol that has none."""
    return await asyncio.gather(*(judge.final(name, transcript) for judge in judges if protocol.finals))


async def _alone(judge: Judge, name: str, chunk: Chunk) -> Sequence[Retest]:
    """The chunk as the judge sees it without what stands before it."""
    return (Retest("alone", await judge.chunk(name, chunk.exchanges[0].user, replace(chunk, context=()))),)


def is_judged_alone(prompt_id: str, beginning: Beginning | None) -> bool:
    """Whether the reply is judged without the history as well: a tenth of the prefixes, the same in every run."""
    return beginning is not None and hashlib.sha256(prompt_id.encode()).digest()[0] % 10 == 0


def is_retested(seed: int | str, conversation: str, chunk: int, percent: int) -> bool:
    """Whether a chunk is in the random sample that is judged again: the same in every session of a run."""
    if percent == 0:
        return False
    digits = hashlib.sha256(f"{seed}-retest-{conversation}-{chunk}".encode()).digest()
    return int.from_bytes(digits[:4], "big") % 100 < percent


def _judged(
    conversation: Conversation,
    judgements: Sequence[ChunkJudgement],
    finals: Sequence[FinalJudgement],
    retests: Sequence[Sequence[Retest]],
) -> Conversation:
    """The conversation with these judgements, in an order that does not depend on which came first.

    Where the budget refused a call that it needed, an empty one that was not run: a resumed run with a larger budget
    then takes it up at that call.
    """
    c = conversation
    judgements = sorted(judgements, key=lambda judgement: (judgement.index, judgement.judge))
    earlier = [judgement for held in c.abandoned for judgement in held.judgements]
    parts: list[Conversation | ChunkJudgement | FinalJudgement] = [c, *judgements, *finals, *earlier]
    for part in parts:
        if part.status is Status.NOT_RUN:
            place = (c.prompt_id, c.category, c.model, c.index, part.status, part.reason)
            return Conversation(*place, twin_of=c.twin_of, beginning=c.beginning)
    flat = [retest for pair in retests for retest in pair]
    return replace(
        conversation,
        judgements=tuple(judgements),
        finals=tuple(finals),
        retests=tuple(sorted(flat, key=lambda r: (r.judgement.index, r.judgement.judge, r.how))),
    )
