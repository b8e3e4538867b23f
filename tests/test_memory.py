"""A conversation that has ended leaves nothing in its process, and one that goes on little more than its text.

Scenarios take little more than their text as well, and the page of a report less than it has characters.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_spiral.chat import ChatReply, ChatRequest
from pytest_spiral.report.html.build import report_pieces
from pytest_spiral.resources import scenarios_root
from pytest_spiral.run.engine import Engine
from pytest_spiral.spiral.simulator import SimulatorMonitor
from tests.html.reports import demo, without_conversations
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
        # A result is told before the loop has let go of the work that made it.
        engine.start(asyncio.sleep(0)).result()

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


def test_scenarios_take_little_more_than_their_text(tmp_path: Path) -> None:
    """At most three times the room of their file, and four times while it is read: parsers keep what they needed.

    What the system gave to a process of its own: only Python's own objects are traced.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    shipped = [json.loads(path.read_text()) for path in sorted((scenarios_root() / "tempaffect").glob("*.json"))]
    scenarios = [{**one, "id": f"own-{n}-{one['id']}"} for n in range(20) for group in shipped for one in group]
    path = tmp_path / "own.json"
    path.write_text(json.dumps(scenarios))
    program = """
import sys
from pathlib import Path
from pytest_spiral.tempaffect.suite import load_suite

def kib():
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return [int(rows[name].split()[0]) for name in ("VmRSS", "VmHWM")]

load_suite()
before = kib()[0]
suite = load_suite([Path(sys.argv[1])])
print(*(each - before for each in kib()))
"""
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    held, most = map(int, done.stdout.split())

    assert held * 1024 < 3 * path.stat().st_size
    assert most * 1024 < 4 * path.stat().st_size


def test_a_page_is_written_in_less_memory_than_it_takes() -> None:
    """Than its data take, as JSON: its parts are made as they are written."""
    suite = without_conversations(demo()).tempaffect
    items = [(item, f"{number}-{item.id}") for number in range(12) for item in suite.items]
    report = without_conversations(demo()).model_copy(
        update={
            "tempaffect": suite.model_copy(
                update={
                    "items": tuple(replace(item, id=name) for item, name in items),
                    "scenarios": {name: suite.scenarios[item.id] for item, name in items},
                }
            )
        }
    )
    chars = len(report.model_dump_json())
    with growth() as held:
        before = held()
        tracemalloc.reset_peak()
        written = sum(len(piece) for piece in report_pieces(report))

        assert written < chars
        assert tracemalloc.get_traced_memory()[1] - before < chars
