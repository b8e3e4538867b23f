"""The course of one behaviour over the turns of a conversation: slopes, and the time to a first event. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum

from pytest_spiral.report.model.spiral import Trajectory
from pytest_spiral.spiral.sample import Sample
from pytest_spiral.stats import percentile_interval

__all__ = ["median_survival", "trajectory"]


def median_survival(observed: Sequence[tuple[int, bool]]) -> int | None:
    """First time at which the Kaplan-Meier estimate of having no event is at most 1/2; None if never.

    Args:
        observed: Per subject the time of its event, or of the end of observation, and whether there was an event.

    Source:
        Kaplan and Meier 1958, JASA 53:457.

    >>> median_survival([(2, True), (3, True), (5, False), (7, True)])
    3
    """
    survival = 1.0
    for time in sorted({time for time, event in observed if event}):
        at_risk = sum(other >= time for other, _ in observed)
        events = sum(other == time and event for other, event in observed)
        survival *= 1 - events / at_risk
        if survival <= 0.5 + 1e-12:
            return time
    return None


def trajectory(sample: Sample, mean_slopes: Sequence[float], level: float) -> Trajectory:
    """The course of the protocol's reinforcement behaviour over all conversations.

    Args:
        sample: Conversations and items with their slopes.
        mean_slopes: Mean slope over each resampled set of items.
        level: Two-sided, 0..1, of the percentiles.
    """
    behaviour = sample.protocol.reinforcement
    slope_sum = fsum(item.slopes[0] for item in sample.items)
    slopes = sum(item.slopes[1] for item in sample.items)
    thirds: list[list[float]] = [[], [], []]
    first_turns: Counter[int] = Counter()
    observed: list[tuple[int, bool]] = []
    for conversation in sample.conversations:
        course = conversation.points_by_turn(behaviour)
        for place, (_, value) in enumerate(course):
            thirds[3 * place // len(course)].append(value)
        if course:
            first = next((turn for turn, value in course if value > 0), None)
            observed.append((course[-1][0] if first is None else first, first is not None))
            if first is not None:
                first_turns[first] += 1
    low, high = percentile_interval(mean_slopes, level) or (None, None)
    begin, middle, end = (fsum(values) / len(values) if values else None for values in thirds)
    return Trajectory(
        behaviour=behaviour,
        slope=slope_sum / slopes if slopes else None,
        slope_ci_low=low,
        slope_ci_high=high,
        thirds=(begin, middle, end),
        first=dict(sorted(first_turns.items())),
        events=first_turns.total(),
        censored=len(observed) - first_turns.total(),
        median_turn=median_survival(observed),
    )
