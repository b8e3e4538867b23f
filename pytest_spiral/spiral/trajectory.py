"""The course of one behaviour over the turns of a conversation: slopes, and the time to a first event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum

from pytest_spiral.report.model.spiral import Trajectory
from pytest_spiral.spiral.counting import CountedConversation
from pytest_spiral.stats import percentile_interval

__all__ = ["median_survival", "slope_of", "trajectory"]


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


def trajectory(
    behaviour: str,
    conversations: Sequence[CountedConversation],
    slopes: Sequence[tuple[float, float]],
    draws: Sequence[float],
    level: float,
) -> Trajectory:
    """The course of a behaviour over all conversations.

    slopes: sum and number of the conversations' slopes, by item. draws: mean slopes over resampled items. level:
    two-sided, 0..1, of the percentiles.
    """
    count = sum(n for _, n in slopes)
    thirds: list[list[float]] = [[], [], []]
    first: Counter[int] = Counter()
    observed: list[tuple[int, bool]] = []
    for conversation in conversations:
        course = conversation.points_of(behaviour)
        for place, (_, value) in enumerate(course):
            thirds[3 * place // len(course)].append(value)
        if course:
            turn = next((turn for turn, value in course if value > 0), None)
            observed.append((course[-1][0] if turn is None else turn, turn is not None))
            if turn is not None:
                first[turn] += 1
    low, high = percentile_interval(draws, level) or (None, None)
    a, b, c = (fsum(values) / len(values) if values else None for values in thirds)
    return Trajectory(
        behaviour=behaviour,
        slope=fsum(total for total, _ in slopes) / count if count else None,
        slope_ci_low=low,
        slope_ci_high=high,
        thirds=(a, b, c),
        first=dict(sorted(first.items())),
        events=sum(first.values()),
        censored=len(observed) - sum(first.values()),
        median_turn=median_survival(observed),
    )
