"""How long the rest of a run takes."""

from __future__ import annotations

import pytest

from pytest_spiral.plugin.terminal import time_left


@pytest.mark.parametrize(
    ("left", "ended", "seconds", "expected"),
    [
        (100, 50, 240.0, "about 8 min left, "),
        (10, 50, 240.0, "about 48 s left, "),
        (75, 0, 30.0, ""),
        (0, 75, 30.0, ""),
    ],
)
def test_time_left(left: int, ended: int, seconds: float, expected: str) -> None:
    """At the rate of the units that ended; nothing is said without a rate."""
    assert time_left(left, ended, seconds) == expected
