"""Whole simulated runs: the short form of `python -m benchmarks.simulate`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from pytest_spiral.resources import data_root
from tests.simulation.disk import CHANGED
from tests.simulation.mutations import find
from tests.simulation.play import installed, play

# Each is a whole run: `python -m benchmarks.simulate --seed N` tells its story.
SEEDS = range(8, 16)
# Where the search for a mutation starts; those that need many seeds are left to the long form.
SHOWN_BY = {
    "token counts are stored as they come": 2,
    "Retry-After: 0 is obeyed": 9,
    "patience lasts 8 s": 18,
    "an error beside choices is a reply": 18,
    "token counts break the sums": 23,
    "a garbled body is not asked for again": 9,
    "an empty store is a new one": 35,
    "a second controller may enter": 9,
    "a store that is taken away is not missed": 19,
    "the limit on the cost is not kept": 35,
}


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    """The simulated machine in place of the real one."""
    with installed():
        yield


def test_the_values_that_are_damaged_are_in_the_store() -> None:
    """Their names are those of the store's columns today."""
    connection = sqlite3.connect(":memory:")
    connection.executescript((data_root() / "store.sql").read_text(encoding="utf-8"))
    columns = {row[1] for row in connection.execute("PRAGMA table_info(reply)")}
    connection.close()

    assert {*CHANGED} <= columns


@pytest.mark.parametrize("seed", SEEDS)
def test_no_run_breaks_a_promise(seed: int) -> None:
    """Whatever network, disk and processes do, every promise holds at every step and at the end."""
    outcome = play(seed)

    assert not outcome.violation, "\n".join(outcome.trace)


def test_a_seed_decides_everything() -> None:
    """A run is the same, step by step, whenever it is played."""
    first, again = play(11), play(11)

    assert first.trace == again.trace
    assert first.requests == again.requests > 0


@pytest.mark.parametrize("mutation", SHOWN_BY)
def test_a_fault_put_back_is_noticed(mutation: str) -> None:
    """Each fault of earlier versions shows in a run; the seed is one that shows it."""
    assert find(mutation, SHOWN_BY[mutation], most=20).seeds
