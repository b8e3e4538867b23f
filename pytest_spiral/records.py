"""The vocabulary of the house: the four states, roles, messages, requests, replies, usage.

Frozen records without behaviour beyond what follows from their own fields; no I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

__all__ = ["ChatReply", "ChatRequest", "Message", "Role", "Status", "Usage"]

Role = Literal["evaluated", "user", "judge"]


class Status(StrEnum):
    """What became of one item or conversation. A score exists only in the first two."""

    MEASURED = "measured"
    MODEL_FAILED = "model_failed"
    INSTRUMENT_FAILED = "instrument_failed"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message as the endpoint sees it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the endpoint reported them; 0 where it reported none."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
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

    @property
    def key(self) -> str:
        """Hex SHA-256 of everything that determines the reply."""
        payload = [
            self.role,
            self.model,
            [[m.role, m.content] for m in self.messages],
            dict(self.params),
            self.schema,
            self.sample,
        ]
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode("ascii")).hexdigest()


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
