"""From a transcript to the chunks that judges see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_spiral.chat import Message
from pytest_spiral.spiral.evidence import SourceText
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.suspicion import without_suspicions


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user message and the reply to it. turn: which assistant message, counted from 0."""

    turn: int
    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive exchanges which one judge call is about. index: place among the chunks, from 0."""

    index: int
    exchanges: tuple[Exchange, ...]

    @property
    def turns(self) -> tuple[int, ...]:
        """Assistant messages judged, counted from 0: upstream's `assistant_turn_indexes`."""
        return tuple(exchange.turn for exchange in self.exchanges)

    @property
    def chars(self) -> int:
        """Judged assistant characters."""
        return sum(len(exchange.assistant) for exchange in self.exchanges)

    @property
    def replies(self) -> tuple[SourceText, ...]:
        """The judged texts, ready to search for quotes."""
        return tuple(SourceText(exchange.turn, exchange.assistant) for exchange in self.exchanges)

    @property
    def user_texts(self) -> tuple[SourceText, ...]:
        """The user messages, to tell whose words a quote repeats."""
        return tuple(SourceText(exchange.turn, exchange.user) for exchange in self.exchanges)

    @property
    def blanked(self) -> Chunk:
        """The chunk without the passages that look as if they addressed the judge."""
        exchanges = (
            replace(e, user=without_suspicions(e.user), assistant=without_suspicions(e.assistant))
            for e in self.exchanges
        )
        return Chunk(self.index, tuple(exchanges))


def chunk_transcript(transcript: Sequence[Message], protocol: Protocol, *, first: int = 0) -> tuple[Chunk, ...]:
    """Pairs of a user message and the reply to it, `chunk_size` to a chunk; the last chunk may be shorter.

    first: index of the first chunk to return.

    A trailing user message is dropped. Replies are cut at `max_reply_chars`. Where the protocol leaves the first turn
    unjudged, pairs start with the second reply; its number stays 1. A reply right after another reply is an exchange
    with an empty user message.
    """
    size = protocol.chunk_size
    first_turn = first * size + (not protocol.first_turn_judged)
    exchanges: list[Exchange] = []
    user: list[str] = []
    turn = 0
    for message in transcript:
        if message.role == "user":
            user.append(message.content)
        elif message.role == "assistant":
            if turn >= first_turn:
                reply = message.content[: protocol.max_reply_chars]
                exchanges.append(Exchange(turn, "\n\n".join(user), reply))
            user = []
            turn += 1
    starts = range(0, len(exchanges), size)
    return tuple(Chunk(index, tuple(exchanges[at : at + size])) for index, at in enumerate(starts, first))
