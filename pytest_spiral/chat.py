"""Talking to a model: messages, requests, replies, and the protocol that every model implements. No I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

__all__ = [
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Message",
    "Role",
    "Schema",
    "StoredChatModel",
    "Usage",
    "as_json",
    "digest",
]

Role = Literal["evaluated", "user", "judge"]
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Message:
    """One chat message as the endpoint sees it."""

    role: Literal["system", "user", "assistant"]
    content: str

    @cached_property
    def digest(self) -> bytes:
        """Of role and content, computed once: a history is hashed message by message, however long it grows."""
        return digest(self.role.encode() + b"\0" + self.content.encode("utf-8", "surrogatepass"))

    @cached_property
    def json(self) -> str:
        """As it is sent, written once: a history is sent again with every turn."""
        return as_json({"role": self.role, "content": self.content})


class Schema(dict[str, Any]):
    """A JSON schema that many requests share: written out once for all of them. Not to be changed."""

    @cached_property
    def json(self) -> str:
        """As it is sent, its keys in the order in which models shall write them."""
        return as_json(self)

    @cached_property
    def canonical(self) -> str:
        """The same text for equal schemas."""
        return as_json(self, sort_keys=True)

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Schema:
        """The schema itself where it is one already."""
        return schema if isinstance(schema, cls) else cls(schema)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the endpoint reported them; 0 where it reported none."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class ChatRequest:
    """One call to a model, with everything that determines its reply.

    params: request parameters as sent (temperature, token limit, reasoning effort, ...).
    schema: JSON schema the endpoint is asked to enforce, None for plain text.
    sample: index of the repetition (epoch), so that repeats are separate measurements.
    unit: what the call belongs to (a scenario or conversation id); for logs and dry models, not part of the key
        (two units that ask the very same thing at the same sample share one reply).
    """

    role: Role
    model: str
    messages: tuple[Message, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    schema: Mapping[str, Any] | None = None
    sample: int = 0
    unit: str = ""

    @cached_property
    def _digests(self) -> bytes:
        return b"".join([message.digest for message in self.messages])

    def history(self, length: int) -> bytes:
        """Digest of the first `length` messages: equal where histories are equal."""
        return digest(self._digests[: length * _DIGEST_BYTES])

    @cached_property
    def key(self) -> str:
        """Hex digest of everything that determines the reply."""
        history = self.history(len(self.messages)).hex()
        before = as_json([self.role, self.model, history, dict(self.params)], sort_keys=True)
        schema = "null" if self.schema is None else Schema.of(self.schema).canonical
        return digest(f"{before[:-1]},{schema},{self.sample}]".encode("ascii")).hex()


def as_json(value: Any, *, sort_keys: bool = False) -> str:
    """Without white space, in ASCII with escapes: half of a surrogate pair, as models emit them, has no UTF-8 form.

    Raises `ValueError` for numbers that JSON does not have.
    """
    return _WRITE[sort_keys](value)


_WRITE = {
    sort_keys: json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
    for sort_keys in (False, True)
}


def digest(data: bytes) -> bytes:
    """16 bytes of BLAKE2b."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What a model answered to one request.

    text: the content as received, "" where the endpoint sent none.
    finish: "stop", "length" (cut by the token limit), "content_filter", "refusal", "tool_calls" or "other".
    model: model name the endpoint says it served.
    seconds: wall time of the successful HTTP request; retries and waits excluded.
    attempts: HTTP requests made, retries included.
    """

    text: str
    finish: Literal["stop", "length", "content_filter", "refusal", "tool_calls", "other"] = "stop"
    model: str = ""
    usage: Usage = Usage()
    seconds: float = 0.0
    attempts: int = 1


class ChatModel(Protocol):
    """Anything that can answer a chat request."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer `request`. Raises `ChatError` when no answer can be had."""
        ...

    async def aclose(self) -> None:
        """Release connections. Must run in the event loop that made the calls."""
        ...


class StoredChatModel(ChatModel, Protocol):
    """A chat model that keeps its replies, so that a resumed run does not ask again."""

    def is_stored(self, request: ChatRequest) -> bool:
        """Whether the reply to `request` is known without asking."""
        ...
