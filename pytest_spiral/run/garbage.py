"""Fewer searches for cyclic garbage while a run is on: they took a third of the time of hundreds of conversations."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Callable

__all__ = ["leave_out", "search_rarely"]

# New objects before a search among them, such searches before one of those that stayed, and those before one of all.
_THRESHOLDS = (10_000, 20, 20)


def search_rarely() -> Callable[[], None]:
    """Leave what was there before the run out of the searches, and let more new objects come together before each.

    Returns what restores this process as it was. Where somebody else has frozen objects already, they stay so.
    """
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()
    if not frozen:
        gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    # An interpreter that ends takes apart what it finds in cycles, class by class: a third of a second for memory
    # that the system is about to take back whole.
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)

    def restore() -> None:
        gc.set_threshold(*thresholds)
        if not frozen:
            gc.unfreeze()

    return restore


def leave_out() -> None:
    """Leave what has been imported since out of the searches as well: pytest makes ten of them at its end."""
    gc.freeze()
