"""Messages, requests and replies of chat models, and the protocol that every model implements. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from pytest_spiral.repetition import repeats_itself
from pytest_spiral.strict_json import json_bytes

Role = Literal["evaluated", "user", "judge", "reply_judge"]
MessageRole = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length", "content_filter", "refusal", "tool_calls", "other"]


TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
"""The two names of the limit on a reply's tokens."""


class TokenLimit(NamedTuple):
    """The limit on a reply's tokens, by the name under which a request has it."""

    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


def token_limit(params: Mapping[str, object]) -> TokenLimit | None:
    """The limit on a reply's tokens in request parameters, None where there is none."""
    for name in TOKEN_LIMITS:
        if isinstance(value := params.get(name), int):
            return TokenLimit(name, value)
    return None


def whose_limit(reply: str, params: Mapping[str, object]) -> str:
    """Why a reply that was cut off is the model's failure. params: those of the first request for it."""
    if repeats_itself(reply):
        return f"the reply repeats itself until it is cut off, first at {token_limit(params)}"
    return f"cut off at {token_limit(params)}, the limit chosen in spiral.toml"


def digest_of(text: str) -> bytes:
    """The first 128 bits of a text's SHA-256: two texts of one run do not share them by accident."""
    # Text from models may hold lone surrogates, which have no UTF-8 form of their own.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


@dataclass(frozen=True)
class Message:
    """One chat message as the endpoint sees it."""

    role: MessageRole
    content: str

    @cached_property
    def digest(self) -> bytes:
        """Identifies the content."""
        return digest_of(self.content)


@dataclass(frozen=True)
class ComposedMessage(Message):
    """A message that repeats texts of other messages, in the order of `parts`: the store keeps those texts once."""

    parts: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one call as the endpoint reported them; 0 where it reported none."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True)
class ChatRequest:
    """One call to a model, with everything that determines its reply.

    Attributes:
        params: Request parameters as sent (temperature, token limit, reasoning effort, ...).
        schema: JSON schema that the endpoint is asked to enforce, None for plain text.
        sample: Index of the repetition (epoch), so that repetitions are separate measurements.
        unit: The scenario or conversation that the call belongs to. Not part of the key: two units that ask the same
            thing in the same repetition share one reply.
    """

    role: Role
    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, object] = field(default_factory=dict)
    schema: Mapping[str, object] | None = None
    sample: int = 0
    unit: str = ""

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of everything that determines the reply. The endpoint's address is not part of it."""
        messages = [[message.role, message.digest.hex()] for message in self.messages]
        document = [self.role, self.model, messages, digest_of(self.settings).hex(), self.sample]
        return hashlib.sha256(json_bytes(document)).hexdigest()

    @cached_property
    def settings(self) -> str:
        """Parameters, in order of their names, and schema, whose order models follow, as one JSON text."""
        schema = None if self.schema is None else dict(self.schema)
        return json_bytes({"params": dict(sorted(self.params.items())), "schema": schema}).decode()


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a model answered to one request.

    Attributes:
        text: What the model said, "" where the endpoint sent nothing. Reasoning is not part of it.
        finish: Why the reply ended; "length" means that the token limit cut it.
        model: The model name that the endpoint reports.
        seconds: Wall time of the successful HTTP request, without retries and waits.
        attempts: HTTP requests made, retries included.
        reasoning: What the model thought before or between what it said, as far as the endpoint shows it. Kept for
            people; it is never judged, scored or sent to another model.
        stored: Whether the store had it, so that nothing was sent.
    """

    text: str
    finish: Finish = "stop"
    model: str = ""
    usage: TokenUsage = TokenUsage()
    seconds: float = 0.0
    attempts: int = 1
    reasoning: str = ""
    stored: bool = field(default=False, compare=False)


class ChatModel(Protocol):
    """Anything that can answer a chat request."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer `request`. Raises `ChatError` when no answer can be had."""

    async def aclose(self) -> None:
        """Release connections. Must run in the event loop that made the calls."""
