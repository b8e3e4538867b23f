"""A store and requests for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import ChatReply, ChatRequest, Message, TokenUsage
from pytest_spiral.errors import ChatError
from pytest_spiral.store import RunStore

CONFIG = {"models": ["a"], "seed": 1}


def ask(text: str = "hello", **changes: Any) -> ChatRequest:
    """A request of which single fields may be changed."""
    fields = {"role": "evaluated", "model": "m", "messages": (Message("user", text),), "unit": "u", **changes}
    return ChatRequest(**fields)


class Counting:
    """A model that counts its calls, or fails."""

    def __init__(self, error: ChatError | None = None, usage: TokenUsage | None = None) -> None:
        self.calls = 0
        self.error = error
        self.usage = usage or TokenUsage(10, 4, 3)

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        if self.error:
            raise self.error
        return ChatReply(f"reply to {request.messages[0].content}", usage=self.usage, attempts=2)

    async def aclose(self) -> None:
        return None


class FailingConnection:
    """A connection that raises once, at the statement of which it is told the number."""

    def __init__(self, inner: sqlite3.Connection, error: Exception, at: int, *, done: bool = False) -> None:
        self.inner = inner
        self.error = error
        self.left = at
        self.done = done

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self.left -= 1
        if self.left == 0 and self.done:
            self.inner.execute(*arguments)
        if self.left == 0:
            raise self.error
        return self.inner.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    """An empty store."""
    store = RunStore.create_or_resume(tmp_path / "run.sqlite", CONFIG)
    yield store
    store.close()


def resume(path: Path) -> RunStore:
    """Open a store, new or not, under the usual configuration."""
    return RunStore.create_or_resume(path, CONFIG)
