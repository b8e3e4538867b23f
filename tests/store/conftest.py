"""A store and requests for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import ChatRequest, Message
from pytest_spiral.store import RunStore

CONFIG = {"models": ["a"], "seed": 1}


def ask(text: str = "hello", **changes: Any) -> ChatRequest:
    """A request of which single fields may be changed."""
    fields = {"role": "evaluated", "model": "m", "messages": (Message("user", text),), "unit": "u", **changes}
    return ChatRequest(**fields)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    """An empty store."""
    store = RunStore.create_or_resume(tmp_path / "run.sqlite", CONFIG)
    yield store
    store.close()


def resume(path: Path) -> RunStore:
    """Open a store, new or not, under the usual configuration."""
    return RunStore.create_or_resume(path, CONFIG)
