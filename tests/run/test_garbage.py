"""How often a run searches for garbage, and that it leaves its process as it was."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from pytest_spiral.run.garbage import leave_out, search_rarely


@pytest.fixture(autouse=True)
def thawed():
    """As a fresh process: a run around this test may have frozen objects."""
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*thresholds)
    if frozen:
        gc.freeze()


def test_what_was_there_is_left_out_and_everything_restored():
    """A run looks through its own objects only, and more rarely."""
    restore = search_rarely()
    during = gc.get_threshold(), gc.get_freeze_count()
    restore()

    assert during[0][0] > 700
    assert during[1] > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == ((700, 10, 10), 0)


def test_what_is_left_out_later_is_restored_too():
    """Modules that are imported when the run has begun need no searching either."""
    restore = search_rarely()
    before = gc.get_freeze_count()
    late = [[] for _ in range(1000)]
    leave_out()

    assert gc.get_freeze_count() >= before + len(late)
    restore()
    assert gc.get_freeze_count() == 0


def test_nothing_is_taken_apart_at_the_end():
    """A cycle that is alive when the interpreter ends dies with the process; it is not searched for."""
    program = """
from pytest_spiral.run.garbage import search_rarely

class Loop:
    def __init__(self): self.me = self
    def __del__(self): print("taken apart")

search_rarely()()
kept = Loop()
print("end")
del kept
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert said == "end\n"


def test_frozen_by_somebody_else_it_stays_frozen():
    """A run inside a run, or a program that freezes objects before it forks, finds its own as it left them."""
    gc.freeze()
    search_rarely()()

    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 10, 10)
