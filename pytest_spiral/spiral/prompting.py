"""What models are asked: from a transcript to requests. Common prefixes first, so that they stay cacheable."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

from pydantic import JsonValue

from pytest_spiral.chat import ChatModel, ChatReply, ChatRequest, ComposedMessage, Message, MessageRole, Role
from pytest_spiral.spiral.chunks import Chunk, Exchange
from pytest_spiral.spiral.content import Rubric
from pytest_spiral.spiral.records import MARK_SCALE
from pytest_spiral.spiral.suspicion import load_signs, without_control_tokens, without_notes
from pytest_spiral.text import whole_characters


@dataclass(frozen=True)
class Participant:
    """A model in one of the three roles of a conversation.

    chat: keeps every reply, so that a resumed run asks nothing twice. max_string: most characters of a string in
    enforced JSON, for models that do not stop by themselves. takes_schemas: whether its endpoint accepts JSON schemas.
    """

    role: Role
    model: str
    chat: ChatModel
    params: Mapping[str, JsonValue] = field(default_factory=dict)
    max_string: int | None = None
    takes_schemas: bool = True

    def request(
        self, messages: Sequence[Message], unit: str, sample: int, schema: Mapping[str, JsonValue] | None = None
    ) -> ChatRequest:
        """A request to the model with its parameters."""
        asked = schema if self.takes_schemas else None
        return ChatRequest(self.role, self.model, tuple(messages), self.params, asked, sample, unit)

    async def reply(self, request: ChatRequest) -> ChatReply:
        """The model's reply. Raises `ChatError` and `StoreError`."""
        reply = await self.chat.complete(request)
        # Half of a surrogate pair is not text: neither a next request nor a record can hold it.
        return replace(reply, text=whole_characters(reply.text))


class UserPrompt:
    """What the simulated user sees: its system prompt, then the conversation with the roles swapped.

    The note of a turn is added to the last message, so that everything before it stays the same from turn to turn.
    Text of the conversation that reads like such a note is blanked, the same way in every turn.
    """

    def __init__(self, system_prompt: str) -> None:
        self._messages = [_system(system_prompt)]

    def add(self, message: Message) -> None:
        """Add the conversation's next message."""
        role: MessageRole = "assistant" if message.role == "user" else "user"
        self._messages.append(Message(role, self.heard(message.content)))

    def heard(self, text: str) -> str:
        """What the simulated user sees of a message."""
        return without_notes(text)

    def messages(self, note: str | None) -> tuple[Message, ...]:
        """The messages to answer. note: that of this turn, None for none."""
        if note is None:
            return tuple(self._messages)
        *before, last = self._messages
        aside = f"\n\n[{load_signs().note}: {note}]"
        return (*before, ComposedMessage(last.role, last.content + aside, (last.content, aside)))


@lru_cache(maxsize=64)
def _system(part: str) -> Message:
    """Long, the same for many requests, and kept: it is hashed and written once."""
    return Message("system", part)


def chunk_messages(rubric: Rubric, opening: str, chunk: Chunk, secret: str) -> tuple[Message, ...]:
    """What a judge sees of one chunk: rubric and instructions, then the opening and the chunk, fenced.

    The fence is that of the conversation, so that everything before the context and the chunk is the same for all its
    chunks and can be served from a provider's prompt cache.
    """
    before, turns = _messages(chunk.context), _messages(chunk.exchanges)
    fence = fence_of(secret, [Message("user", opening)])
    opening = without_control_tokens(opening)
    words = _words(rubric, fence)
    # The first exchange holds the opening already.
    context = [] if turns[0].content == opening else [words["before_opening"], fence, opening, fence]
    if before and before[0].content == opening:
        before = before[1:]
    if before:
        context += [words["before_context"], *_fenced(before, words, fence)]
    body = [words["fence_rule"], *context, words["before_chunk"], *_fenced(turns, words, fence), words["after"]]
    parts = (words["fence_rule"], opening, *(turn.content for turn in (*before, *turns)), words["after"])
    return (_system(rubric.chunk_part), ComposedMessage("user", "\n".join(body), parts))


def _messages(exchanges: Sequence[Exchange]) -> list[Message]:
    turns = []
    for exchange in exchanges:
        if exchange.user:
            turns.append(_shown(Message("user", exchange.user)))
        turns.append(_shown(Message("assistant", exchange.assistant)))
    return turns


def final_messages(rubric: Rubric, transcript: Sequence[Message], secret: str) -> tuple[Message, ...]:
    """What a judge sees of a whole conversation; a trailing user message is left out."""
    turns = [*transcript]
    while turns and turns[-1].role == "user":
        turns.pop()
    fence = fence_of(secret, turns)
    turns = [_shown(turn) for turn in turns]
    words = _words(rubric, fence)
    body = [words["fence_rule"], words["before_transcript"], *_fenced(turns, words, fence), words["after"]]
    return (_system(rubric.final_part), ComposedMessage("user", "\n".join(body), tuple(t.content for t in turns)))


def fence_of(secret: str, transcript: Sequence[Message]) -> str:
    """A delimiter that no model can know while it writes, the same whenever the same transcript is judged again.

    HMAC-SHA-256 over the transcript under the run's secret, shortened to 96 bits.
    """
    text = json.dumps([[m.role, m.content] for m in transcript], ensure_ascii=True)
    return "=" * 6 + hmac.new(secret.encode(), text.encode("ascii"), hashlib.sha256).hexdigest()[:24]


def _words(rubric: Rubric, fence: str) -> Mapping[str, str]:
    """Wording around the material. Only our own words are ever filled in: the material may hold the placeholder."""
    return {name: text.replace("{fence}", fence) for name, text in rubric.asides.items()}


def _shown(turn: Message) -> Message:
    return Message(turn.role, without_control_tokens(turn.content))


def _fenced(turns: Sequence[Message], words: Mapping[str, str], fence: str) -> list[str]:
    spoken = [(words["user_turn" if turn.role == "user" else "assistant_turn"], turn.content) for turn in turns]
    return [fence, *(line for lines in spoken for line in lines), fence]


@cache
def chunk_schema(
    behaviours: tuple[str, ...], marks: tuple[str, ...] = (), *, longest: int | None = None
) -> dict[str, JsonValue]:
    """JSON schema of a chunk judgement.

    marks: of the user's last message, answered before the behaviours. longest: characters of a string, with one finding
    a behaviour, where a model does not stop by itself; None leaves both open, because strict providers accept no such
    limits.
    """
    finding = json_object({"quote": json_string(longest), "strength": {"type": "integer", "enum": [1, 2, 3]}})
    findings: dict[str, JsonValue] = {"type": "array", "items": finding}
    if longest is not None:
        findings["maxItems"] = 1
    mark: JsonValue = {"type": "integer", "enum": [*range(MARK_SCALE[1] + 1)]}
    return json_object(
        {"reasoning": json_string(longest), **dict.fromkeys(marks, mark), **dict.fromkeys(behaviours, findings)}
    )


@cache
def final_schema(metrics: tuple[str, ...], *, longest: int | None = None) -> dict[str, JsonValue]:
    """JSON schema of a final judgement; `longest` as in `chunk_schema`."""
    score: JsonValue = {"type": "integer", "enum": list(range(11))}
    return json_object({"reasoning": json_string(longest), **dict.fromkeys(metrics, score)})


def json_string(longest: int | None) -> dict[str, JsonValue]:
    return {"type": "string"} if longest is None else {"type": "string", "maxLength": longest}


def json_object(properties: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
