"""Runs inside tests get the same few replies from the same built-in models: each is checked once a process.

A quarter of the time of a run of all scenarios went into checking its replies, which depends on nothing else.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from pytest_spiral.tempaffect import checks, detectors

__all__ = ["score_once"]

_check_reply = lru_cache(maxsize=4_096)(checks.check_reply)
_mask = lru_cache(maxsize=4_096)(detectors._mask)


def score_once(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone, this process remembers the checks of a scenario's replies and their patterns."""
    patch.setattr(checks, "check_reply", _check_reply)
    patch.setattr(detectors, "_mask", _mask)
