"""Whole simulated runs: the short form of `python -m benchmarks.simulate`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.play import installed, play

# Each is a whole run: `python -m benchmarks.simulate --seed N` tells its story.
SEEDS = range(10, 18)


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    """The simulated machine in place of the real one."""
    with installed():
        yield


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
