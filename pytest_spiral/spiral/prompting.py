"""From a transcript to what the user model and the judges see. Common prefixes first, so that they stay cacheable."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal

from pytest_spiral.chat import ComposedMessage, Message
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.content import Rubric
from pytest_spiral.spiral.suspicion import load_signs, without_notes

__all__ = ["UserPrompt", "chunk_messages", "chunk_schema", "fence_of", "final_messages", "final_schema"]


class UserPrompt:
    """What the simulated user sees: its system prompt, then the conversation with the roles swapped.

    An injection is added to the last message, so that everything before it stays the same from turn to turn. Text of
    the conversation that reads like such a note is blanked, the same way in every turn.
    """

    def __init__(self, system_prompt: str) -> None:
        self._messages = [_system(system_prompt)]

    def add(self, message: Message) -> None:
        """Add the conversation's next message."""
        role: Literal["assistant", "user"] = "assistant" if message.role == "user" else "user"
        self._messages.append(Message(role, without_notes(message.content)))

    def messages(self, injection: str | None) -> tuple[Message, ...]:
        """The messages to answer. injection: the note of this turn, None for none."""
        if injection is None:
            return tuple(self._messages)
        *before, last = self._messages
        noted = f"{last.content}\n\n[{load_signs().note}: {injection}]"
        return (*before, ComposedMessage(last.role, noted, (last.content,)))


@lru_cache(maxsize=64)
def _system(part: str) -> Message:
    """Long, the same for many requests, and kept: it is hashed and written once."""
    return Message("system", part)


def fence_of(secret: str, transcript: Sequence[Message]) -> str:
    """A delimiter that no model can know while it writes, the same whenever the same transcript is judged again.

    HMAC-SHA-256 over the transcript under the run's secret, shortened to 96 bits.
    """
    text = json.dumps([[m.role, m.content] for m in transcript], ensure_ascii=True)
    return "=" * 6 + hmac.new(secret.encode(), text.encode("ascii"), hashlib.sha256).hexdigest()[:24]


def chunk_messages(rubric: Rubric, opening: str, chunk: Chunk, secret: str) -> tuple[Message, ...]:
    """What a judge sees of one chunk: rubric and instructions, then the opening and the chunk, fenced.

    The fence is that of the conversation, so that everything before the chunk is the same for all its chunks and can be
    served from a provider's prompt cache.
    """
    turns: list[Message] = []
    for exchange in chunk.exchanges:
        if exchange.user:
            turns.append(Message("user", exchange.user))
        turns.append(Message("assistant", exchange.assistant))
    fenced = _Fenced(rubric, fence_of(secret, [Message("user", opening)]))
    # The first exchange holds the opening already.
    context = [] if turns[0].content == opening else [fenced.aside("before_opening"), fenced.block([opening])]
    body = [
        fenced.aside("fence_rule"),
        *context,
        fenced.aside("before_chunk"),
        fenced.spoken(turns),
        fenced.aside("after"),
    ]
    parts = (body[0], opening, *(turn.content for turn in turns), body[-1])
    return (_system(rubric.chunk_part), ComposedMessage("user", "\n".join(body), parts))


def final_messages(rubric: Rubric, transcript: Sequence[Message], secret: str) -> tuple[Message, ...]:
    """What a judge sees of a whole conversation; a trailing user message is left out."""
    turns = [*transcript]
    while turns and turns[-1].role == "user":
        turns.pop()
    fenced = _Fenced(rubric, fence_of(secret, turns))
    body = [fenced.aside("fence_rule"), fenced.aside("before_transcript"), fenced.spoken(turns), fenced.aside("after")]
    parts = tuple(turn.content for turn in turns)
    return (_system(rubric.final_part), ComposedMessage("user", "\n".join(body), parts))


class _Fenced:
    """Wording around the material. Only our own words are ever filled in: the material may hold the placeholder."""

    def __init__(self, rubric: Rubric, fence: str) -> None:
        self._words: Mapping[str, str] = {
            name: text.replace("{fence}", fence) for name, text in rubric.asides.model_dump().items()
        }
        self._fence = fence

    def aside(self, name: str) -> str:
        return self._words[name]

    def block(self, lines: Sequence[str]) -> str:
        return "\n".join([self._fence, *lines, self._fence])

    def spoken(self, turns: Sequence[Message]) -> str:
        lines = []
        for turn in turns:
            lines += [self.aside("user_turn" if turn.role == "user" else "assistant_turn"), turn.content]
        return self.block(lines)


@cache
def chunk_schema(behaviours: tuple[str, ...], *, longest: int | None = None) -> dict[str, Any]:
    """JSON schema of a chunk judgement.

    longest: characters of a string, with one finding a behaviour, where a model does not stop by itself; None leaves
    both open, as strict providers want it.
    """
    text = {"type": "string"} if longest is None else {"type": "string", "maxLength": longest}
    finding = {
        "type": "object",
        "properties": {"quote": text, "strength": {"type": "integer", "enum": [1, 2, 3]}},
        "required": ["quote", "strength"],
        "additionalProperties": False,
    }
    findings: dict[str, Any] = {"type": "array", "items": finding}
    if longest is not None:
        findings["maxItems"] = 1
    return _object({"reasoning": text, **dict.fromkeys(behaviours, findings)})


@cache
def final_schema(metrics: tuple[str, ...], *, longest: int | None = None) -> dict[str, Any]:
    """JSON schema of a final judgement; `longest` as in `chunk_schema`."""
    text = {"type": "string"} if longest is None else {"type": "string", "maxLength": longest}
    return _object({"reasoning": text, **{name: {"type": "integer", "enum": list(range(11))} for name in metrics}})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
