"""From a transcript to the chunks that judges see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_spiral.chat import Message
from pytest_spiral.spiral.evidence import SourceText
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.suspicion import BLANK, without_suspicions


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user message and the reply to it. turn: which assistant message, counted from 0."""

    turn: int
    user: str
    assistant: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive exchanges which one judge call is about. index: place among the chunks, from 0.

    context: the exchanges before them that the judge is shown and does not label.
    """

    index: int
    exchanges: tuple[Exchange, ...]
    context: tuple[Exchange, ...] = ()

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
        """The user messages, context included, to tell whose words a quote repeats."""
        return tuple(SourceText(exchange.turn, exchange.user) for exchange in (*self.context, *self.exchanges))

    @property
    def blanked(self) -> Chunk:
        """The chunk without the passages that look as if they addressed the judge."""
        exchanges, context = (
            tuple(replace(e, user=without_suspicions(e.user), assistant=without_suspicions(e.assistant)) for e in part)
            for part in (self.exchanges, self.context)
        )
        return Chunk(self.index, exchanges, context)


def chunk_transcript(
    transcript: Sequence[Message], protocol: Protocol, *, first: int = 0, history: Sequence[Message] = ()
) -> tuple[Chunk, ...]:
    """Pairs of a user message and the reply to it, `chunk_size` to a chunk; the last chunk may be shorter.

    first: index of the first chunk to return. history: messages before the transcript, for the context alone.

    A trailing user message is dropped. Replies are cut at `max_reply_chars`, messages of the context in their middle.
    Where the protocol leaves the first turn unjudged, pairs start with the second reply; its number stays 1. A reply
    right after another reply is an exchange with an empty user message.
    """
    size, before = protocol.chunk_size, protocol.context_turns
    earlier, own = (exchanges(messages, protocol.max_reply_chars) for messages in (history, transcript))
    starts = range(first * size + (not protocol.first_turn_judged), len(own), size)
    return tuple(
        Chunk(
            index,
            tuple(own[at : at + size]),
            tuple(
                _shortened(exchange, protocol.context_chars or 0)
                for exchange in [*earlier, *own[:at]][max(0, len(earlier) + at - before) :]
            ),
        )
        for index, at in enumerate(starts, first)
    )


def exchanges(transcript: Iterable[Message], most_chars: int | None = None) -> list[Exchange]:
    """The replies of a transcript, each with everything that the user said since the last. most_chars: of a reply."""
    found: list[Exchange] = []
    user: list[str] = []
    for message in transcript:
        if message.role == "user":
            user.append(message.content)
        elif message.role == "assistant":
            found.append(Exchange(len(found), "\n\n".join(user), message.content[:most_chars]))
            user = []
    return found


def is_cut(replies: Sequence[str], turns: Collection[int], protocol: Protocol) -> bool:
    """Whether judges do not see the end of one of these replies."""
    return any(len(replies[turn]) > protocol.max_reply_chars for turn in turns if turn < len(replies))


def cut_replies(conversations: Iterable[Conversation], protocol: Protocol) -> int:
    """Replies whose end judges do not see."""
    return sum(len(reply) > protocol.max_reply_chars for one in conversations for reply in one.replies)


def _shortened(exchange: Exchange, limit: int) -> Exchange:
    user, assistant = (
        text if len(text) <= limit else f"{text[: limit // 2]} {BLANK} {text[-(limit // 2) :]}"
        for text in (exchange.user, exchange.assistant)
    )
    return replace(exchange, user=user, assistant=assistant)
