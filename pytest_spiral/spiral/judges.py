"""What a judge is, and judging recorded conversations again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pytest_spiral.chat import Message
from pytest_spiral.spiral.chunks import Chunk, chunk_transcript
from pytest_spiral.spiral.protocol import Protocol as ScoringProtocol
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, FinalJudgement, Retest
from pytest_spiral.status import Status

__all__ = ["Judge", "affordable", "is_retested", "rejudge", "with_judgements"]


class Judge(Protocol):
    """Labels what the evaluated model did. A failure of the judge is a judgement with that status, not an exception."""

    @property
    def name(self) -> str:
        """How judgements name this judge."""
        ...

    async def chunk(self, conversation: str, opening: str, chunk: Chunk) -> ChunkJudgement:
        """Judge one chunk of the conversation with this id and opening message."""
        ...

    async def final(self, conversation: str, transcript: Sequence[Message]) -> FinalJudgement:
        """Judge a whole conversation."""
        ...

    async def retest(self, conversation: str, opening: str, chunk: Chunk) -> Sequence[Retest]:
        """Judge a chunk again, once in the same and once in another order of the behaviours."""
        ...


async def rejudge(
    conversation: Conversation,
    protocol: ScoringProtocol,
    judges: Sequence[Judge],
    seed: int | str = 1,
    retest_percent: int = 0,
) -> Conversation:
    """Replace the judgements of a recorded conversation. One that was not measured only loses those it has.

    Args:
        conversation: The record.
        protocol: Decides the chunks.
        judges: Who judges.
        seed: Decides which chunks are retested.
        retest_percent: Percentage of chunks, 0..100, to judge again.
    """
    if conversation.status is not Status.MEASURED:
        return replace(conversation, judgements=(), finals=(), retests=())
    name = f"{conversation.prompt_id}-{conversation.index}"
    opening = conversation.transcript[0].content
    chunks = chunk_transcript(conversation.transcript, protocol)
    retested = [chunk for chunk in chunks if is_retested(seed, name, chunk.index, retest_percent)]
    judgements, finals, retests = await asyncio.gather(
        asyncio.gather(*(judge.chunk(name, opening, chunk) for chunk in chunks for judge in judges)),
        asyncio.gather(*(judge.final(name, conversation.transcript) for judge in judges)),
        asyncio.gather(*(judge.retest(name, opening, chunk) for chunk in retested for judge in judges)),
    )
    return affordable(with_judgements(conversation, judgements, finals, [r for pair in retests for r in pair]))


def is_retested(seed: int | str, conversation: str, chunk: int, percent: int) -> bool:
    """Whether a chunk is in the random sample that is judged again: the same in every session of a run."""
    if percent == 0:
        return False
    digits = hashlib.sha256(f"{seed}-retest-{conversation}-{chunk}".encode()).digest()
    return int.from_bytes(digits[:4], "big") % 100 < percent


def with_judgements(
    conversation: Conversation,
    judgements: Sequence[ChunkJudgement],
    finals: Sequence[FinalJudgement],
    retests: Sequence[Retest],
) -> Conversation:
    """The conversation with these judgements, in an order that does not depend on which came first."""
    return replace(
        conversation,
        judgements=tuple(sorted(judgements, key=lambda judgement: (judgement.index, judgement.judge))),
        finals=tuple(finals),
        retests=tuple(sorted(retests, key=lambda r: (r.judgement.index, r.judgement.judge, r.how))),
    )


def affordable(conversation: Conversation) -> Conversation:
    """The conversation, or an empty one that was not run where the budget refused a call it needed.

    A resumed run with a larger budget then takes it up at that call.
    """
    judgements: list[ChunkJudgement | FinalJudgement] = [*conversation.judgements, *conversation.finals]
    refused = [judgement.reason for judgement in judgements if judgement.status is Status.NOT_RUN]
    if conversation.status is not Status.NOT_RUN and not refused:
        return conversation
    return Conversation(
        prompt_id=conversation.prompt_id,
        category=conversation.category,
        model=conversation.model,
        index=conversation.index,
        status=Status.NOT_RUN,
        reason=conversation.reason if conversation.status is Status.NOT_RUN else refused[0],
        twin_of=conversation.twin_of,
    )
