"""How progress says how long the rest of a run takes."""

from __future__ import annotations

import pytest

from pytest_spiral.plugin.terminal import time_left


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(480.0, "about 8 min left, "), (150.0, "about 150 s left, "), (None, "")],
)
def test_time_left(seconds: float | None, expected: str) -> None:
    """In seconds or minutes, so that rounding adds no 10 %; nothing is said where it is not known."""
    assert time_left(seconds) == expected
