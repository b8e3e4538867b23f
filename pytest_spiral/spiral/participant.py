"""A model in one of the three roles of a conversation, with the parameters of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from pytest_spiral.chat import ChatReply, ChatRequest, Message, Role, StoredChatModel
from pytest_spiral.text import whole_characters

__all__ = ["Participant"]


@dataclass(frozen=True)
class Participant:
    """A model in a role.

    Attributes:
        role: What it does in the conversation.
        model: Its model id, as requests name it.
        chat: The client. It keeps every reply, so that a resumed run asks nothing twice.
        params: Request parameters such as temperature.
        max_string: Most characters of a string in enforced JSON, for models that do not stop by themselves; None for
            no limit.
    """

    role: Role
    model: str
    chat: StoredChatModel
    params: Mapping[str, JsonValue] = field(default_factory=dict)
    max_string: int | None = None

    def request(
        self, messages: Sequence[Message], unit: str, sample: int, schema: Mapping[str, JsonValue] | None = None
    ) -> ChatRequest:
        """A request to the model with its parameters."""
        return ChatRequest(self.role, self.model, tuple(messages), self.params, schema, sample, unit)

    async def reply(self, request: ChatRequest) -> ChatReply:
        """The model's reply. Raises `ChatError` and `StoreError`."""
        reply = await self.chat.complete(request)
        # Half of a surrogate pair is not text: neither a next request nor a record can hold it.
        text = whole_characters(reply.text)
        return reply if text == reply.text else replace(reply, text=text)

    def has_reply(self, request: ChatRequest) -> bool:
        """Whether the reply is stored already."""
        return self.chat.is_stored(request)
