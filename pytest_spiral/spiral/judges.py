"""What a judge is, and a model as judge: strict JSON, one more try, never a zero for a reply that cannot be read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pydantic import JsonValue

from pytest_spiral.chat import ChatReply, Message
from pytest_spiral.errors import ChatError
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.content import Rubric
from pytest_spiral.spiral.evidence import SourceText
from pytest_spiral.spiral.judging import Readable, Rejected, Unreadable, parse_final_reply, parse_judge_reply
from pytest_spiral.spiral.places import worse_chunk, worse_final
from pytest_spiral.spiral.prompting import Participant, chunk_messages, chunk_schema, final_messages, final_schema
from pytest_spiral.spiral.protocol import Protocol as ScoringProtocol
from pytest_spiral.spiral.records import ChunkJudgement, FinalJudgement, Finding, Retest
from pytest_spiral.spiral.suspicion import without_suspicions
from pytest_spiral.status import Reason, ReasonCode

T = TypeVar("T")
# Of a reply that cannot be read: more would only be paid for again, and fill memory and report.
_SHOWN_CHARS = 20_000
# Every session of a run may add one sample to those that could not be read; this bounds their number.
MAX_SAMPLES = 20
_EMPTY_REPLY = "(nothing)"
# Behaviours that a judge saw nothing of: most of its reply, and no part of the record. Nothing within a string matches.
_NOT_SEEN = re.compile(r',\s*"[\w-]+"\s*:\s*\[\s*\]')


class Judge(Protocol):
    """Labels what the evaluated model did. A failure of the judge is a judgement with that status, not an exception."""

    @property
    def name(self) -> str:
        """How judgements name this judge."""

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        """Judge one chunk of the conversation with this id and opening message."""

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        """Judge a whole conversation."""

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        """Judge a chunk again, once in the same and once in another order of the behaviours."""


@dataclass(frozen=True)
class ModelJudge:
    """A judge that asks a model under a rubric.

    Text that may address the judge is judged twice, as it is and with the suspicious passages blanked; the worse result
    counts. The run's `secret` makes the delimiters around transcripts unpredictable.
    """

    participant: Participant
    rubric: Rubric
    protocol: ScoringProtocol
    secret: str

    @property
    def name(self) -> str:
        return self.participant.model

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        blanked = chunk.blanked
        if blanked == chunk:
            return await self._chunk(conversation, opening, chunk, chunk)
        both = await asyncio.gather(
            self._chunk(conversation, opening, chunk, chunk),
            self._chunk(conversation, without_suspicions(opening), blanked, chunk),
        )
        return worse_chunk(*both, self._risky)

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        rubric = self.rubric.reordered(f"{conversation}-{chunk.index}")
        again, reordered = await asyncio.gather(
            self._chunk(conversation, opening, chunk, chunk, first_sample=MAX_SAMPLES),
            replace(self, rubric=rubric)._chunk(conversation, opening, chunk, chunk),
        )
        return Retest("again", again), Retest("reordered", reordered)

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        blanked = [replace(message, content=without_suspicions(message.content)) for message in transcript]
        if blanked == list(transcript):
            return await self._final(conversation, transcript)
        both = await asyncio.gather(self._final(conversation, transcript), self._final(conversation, blanked))
        return worse_final(*both, self._risky)

    async def _chunk(
        self, conversation: str, opening: str, shown: Chunk, said: Chunk, first_sample: int = 0
    ) -> ChunkJudgement:
        """Judge the chunk as `shown`; quotes are looked up in what was `said`."""
        behaviours, marks = self.protocol.behaviours, self.rubric.marks

        def parse(reply: ChatReply) -> Readable[tuple[Finding, ...]]:
            return parse_judge_reply(
                reply.text,
                behaviours,
                said.replies,
                user_texts=(SourceText(0, opening), *said.user_texts),
                context=[exchange.assistant for exchange in said.context],
                marks=marks,
                judge=self.name,
                finish=reply.finish,
            )

        messages = chunk_messages(self.rubric, opening, shown, self.secret)
        schema = chunk_schema(tuple(self.rubric.behaviours), marks, longest=self.participant.max_string)
        repair = self.rubric.asides["repair"]
        parsed, text = await ask_judge(
            self.participant, conversation, messages, schema, parse, repair=repair, first_sample=first_sample
        )
        judgement = ChunkJudgement(shown.index, shown.turns, self.name, chars=float(shown.chars), raw_text=text)
        if isinstance(parsed, Rejected):
            return replace(judgement, status=parsed.status, reason=parsed.reason)
        return replace(
            judgement,
            behaviours=behaviours,
            findings=parsed.value,
            raw_text=_NOT_SEEN.sub("", text),
            repairs=parsed.repairs,
            called_for=parsed.called_for,
        )

    async def _final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        metrics, shown = self.protocol.finals, [message.content for message in transcript]

        def parse(reply: ChatReply) -> Readable[Mapping[str, int]]:
            return parse_final_reply(reply.text, metrics, material=shown, finish=reply.finish)

        messages = final_messages(self.rubric, transcript, self.secret)
        schema = final_schema(metrics, longest=self.participant.max_string)
        repair = self.rubric.asides["repair"]
        parsed, text = await ask_judge(self.participant, conversation, messages, schema, parse, repair=repair)
        if isinstance(parsed, Rejected):
            return FinalJudgement(self.name, parsed.status, parsed.reason, {}, text)
        scores = {name: float(score) for name, score in parsed.value.items()}
        return FinalJudgement(self.name, scores=scores, raw_text=text, repairs=parsed.repairs)

    @property
    def _risky(self) -> frozenset[str]:
        return frozenset(name for name, metric in self.protocol.metrics.items() if metric.sign == "risky")


async def ask_judge(
    participant: Participant,
    unit: str,
    messages: Sequence[Message],
    schema: Mapping[str, JsonValue] | None,
    parse: Callable[[ChatReply], T],
    *,
    repair: str | None = None,
    first_sample: int = 0,
) -> tuple[T | Rejected, str]:
    """Ask a judge, and where the reply cannot be read ask once more in view of it.

    Stored replies that could not be read do not count against this session: a resumed run tries a new sample.

    Args:
        parse: Reads a reply. Raises `Unreadable` for one that is no judgement.
        repair: The second question, None for none.

    Returns:
        The parsed reply or why there is none, and the last reply, of an unreadable one the beginning.
    """
    for sample in range(first_sample, first_sample + MAX_SAMPLES):
        asked, stored = [*messages], True
        for question in (repair, None) if repair else (None,):
            is_second_question = len(asked) > len(messages)
            try:
                reply = await participant.reply(participant.request(asked, unit, sample, schema))
            except ChatError as error:
                if is_second_question and stored:
                    # The unreadable reply itself may be what the endpoint refuses: try another sample.
                    break
                return Rejected(error.reason()), ""
            try:
                return parse(reply), reply.text
            except Unreadable as unreadable:
                rejected, text = unreadable.rejected, reply.text[:_SHOWN_CHARS]
            stored = stored and reply.stored
            if question is not None:
                # Some endpoints refuse a message without text.
                asked += [Message("assistant", text if text.strip() else _EMPTY_REPLY), Message("user", question)]
        else:  # All questions were answered, and no answer could be read.
            if not stored:
                return rejected, text
    return Rejected(Reason(ReasonCode.NO_READABLE_REPLY, f"none of {MAX_SAMPLES}; resuming asks for no more")), ""
