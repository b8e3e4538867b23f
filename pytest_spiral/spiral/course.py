"""The course of one behaviour over the turns of a conversation: slopes, and the time to a first event."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

__all__ = ["median_survival", "slope_of"]


def slope_of(points: Sequence[tuple[int, float]]) -> float | None:
    """Least-squares slope; None for fewer than two turns."""
    if len(points) < 2:
        return None
    centre_x = fsum(x for x, _ in points) / len(points)
    centre_y = fsum(y for _, y in points) / len(points)
    spread = fsum((x - centre_x) ** 2 for x, _ in points)
    return fsum((x - centre_x) * (y - centre_y) for x, y in points) / spread if spread else None


def median_survival(observed: Sequence[tuple[int, bool]]) -> int | None:
    """First time at which the Kaplan-Meier estimate is at most 1/2 (Kaplan and Meier 1958, JASA 53:457)."""
    survival = 1.0
    for time in sorted({time for time, event in observed if event}):
        at_risk = sum(other >= time for other, _ in observed)
        events = sum(other == time and event for other, event in observed)
        survival *= 1 - events / at_risk
        if survival <= 0.5 + 1e-12:
            return time
    return None
