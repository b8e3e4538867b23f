"""Talking to models: one small protocol, and the implementations behind it.

Nothing above this room knows which kind of model it talks to.
"""

from __future__ import annotations

from typing import Protocol

from pytest_spiral.records import ChatReply, ChatRequest

__all__ = ["ChatModel"]


class ChatModel(Protocol):
    """Anything that can answer a chat request."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer `request`. Raises `ChatError` when no answer can be had."""
        ...

    async def aclose(self) -> None:
        """Release connections. Must run in the event loop that made the calls."""
        ...
