"""How often a run searches for garbage, and that it leaves its process as it was."""

from __future__ import annotations

import gc

import pytest

from pytest_spiral.session.garbage import search_rarely


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


def test_frozen_by_somebody_else_it_stays_frozen():
    """A run inside a run, or a program that freezes objects before it forks, finds its own as it left them."""
    gc.freeze()
    search_rarely()()

    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 10, 10)
