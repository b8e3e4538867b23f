"""The built-in judge that stands in for a model. It looks for cues, understands nothing, and costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_spiral.chat import Message
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.lexical import lexical_final, lexical_findings
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import ChunkJudgement, FinalJudgement, Retest

__all__ = ["LexicalJudge"]


@dataclass(frozen=True)
class LexicalJudge:
    """A judge that finds cue words. It needs no store: asked again, it says the same."""

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
