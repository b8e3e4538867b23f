"""A conversation that has ended leaves nothing in its process, and one that goes on little more than its text."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.run.engine import Engine
from pytest_spiral.spiral.simulator import SimulatorMonitor
from tests.spiral_run.conftest import Cast, cast, say

__all__ = ["cast"]

TURNS = 6
WORDS = [
    first + second for first in ("bar", "del", "fon", "kel", "mar") for second in ("ta", "ne", "ro", "lin", "so", "du")
]
# No two are alike, and none is long enough to be taken for a collapse.
SAID = random.Random(1)


def message(chars: int = 4_000) -> str:
    """Words in random order."""
    return " ".join(SAID.choices(WORDS, k=chars // 6))


class Talker:
    """Says something new each time, remembers nothing, and judges as the fake server does."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        return ChatReply(say(request) if request.role == "judge" else message())

    async def aclose(self) -> None:
        return None


@contextmanager
def growth() -> Iterator[Callable[[], int]]:
    """Tells how many bytes have been taken since the beginning and are still held."""
    tracemalloc.start()

    def held() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield held
    finally:
        tracemalloc.stop()


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def test_a_conversation_that_has_ended_leaves_nothing(cast: Callable[..., Cast], engine: Engine) -> None:
    """Once its result is handed over, neither engine nor store nor any cache holds a text of it."""
    scene = cast(evaluated=Talker(), user=Talker(), judges=(Talker(),), turns=TURNS)

    def hold(index: int) -> int:
        conversation = engine.wait(engine.submit(index, lambda: scene._hold(index)))
        engine.release(index)
        return sum(len(said.content) for said in conversation.transcript)

    # Everything is loaded, and the store has enough texts for its dictionary, which is made once.
    for index in range(3):
        hold(index)
    with growth() as held:
        chars = hold(3) + hold(4)

        assert chars > 80_000
        assert held() < chars / 3


def test_a_conversation_that_goes_on_is_held_about_once() -> None:
    """What is remembered of the user's messages, to notice repetition, takes no more than twice their room."""
    messages = [message() for _ in range(20)]
    monitor = SimulatorMonitor("shipped")
    monitor.add_user_message(message())
    with growth() as held:
        for said in messages:
            monitor.add_user_message(said)

        assert held() < 2 * sum(map(len, messages))
