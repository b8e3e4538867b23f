"""Behaviours over the turns of a conversation: slopes, the time to a first event, and the mean at each turn. Pure."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pytest_spiral.grouping import grouped
from pytest_spiral.report.model.spiral import Trajectory
from pytest_spiral.spiral.panel import Panel, PanelMeans
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.spiral.sample import JudgedSample, Resampled
from pytest_spiral.stats import percentile_interval
from pytest_spiral.status import Status

_DRAWS = 400
_TAIL = 0.025

# Mean strength by behaviour, 0 for those not named.
_Means = Mapping[str, float]


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


def trajectory(panel: Panel, resampled: Resampled[PanelMeans]) -> Trajectory:
    """The course of the protocol's reinforcement behaviour over all conversations.

    Slope and thirds are means over the judges; a first finding is that of any judge.
    """
    behaviour, slope_of = panel.protocol.reinforcement, panel.mean_of(-1)
    thirds = [[_third(sample, behaviour, third) for sample in panel.samples] for third in range(3)]
    begin, middle, end = map(panel.average_metric, thirds)
    first_turns: Counter[int] = Counter()
    observed: list[tuple[int, bool]] = []
    for views in panel.conversations().values():
        if course := sorted(point for view in views for point in view.points_by_turn(behaviour)):
            first = next((turn for turn, value in course if value > 0), None)
            observed.append((course[-1][0] if first is None else first, first is not None))
            if first is not None:
                first_turns[first] += 1
    slopes = [slope for means in resampled.draws if (slope := slope_of(means)) is not None]
    low, high = percentile_interval(slopes, resampled.level) or (None, None)
    return Trajectory(
        behaviour=behaviour,
        slope=slope_of(resampled.whole),
        slope_ci_low=low,
        slope_ci_high=high,
        thirds=(begin, middle, end),
        first=dict(sorted(first_turns.items())),
        events=first_turns.total(),
        censored=len(observed) - first_turns.total(),
        median_turn=median_survival(observed),
    )


def _third(sample: JudgedSample, behaviour: str, third: int) -> float | None:
    """Mean over the first, middle or last third of the judged turns of each conversation, within prompts first."""
    courses = ((one.item, one.points_by_turn(behaviour)) for one in sample.conversations)
    values = grouped((key, y) for key, own in courses for n, (_, y) in enumerate(own) if 3 * n // len(own) == third)
    return fmean(map(fmean, values.values())) if values else None


@dataclass(frozen=True, slots=True)
class TurnMeans:
    """By assistant turn the number of prompts judged, and by behaviour mean, lower and upper bound, None for none."""

    n: Sequence[int]
    behaviours: Mapping[str, Sequence[tuple[float, float, float] | None]]


def turn_means(conversations: Sequence[Conversation], behaviours: Sequence[str], seed: int) -> TurnMeans:
    """Mean strength of located findings by behaviour and turn, averaged over judges: a description, part of no score.

    The unit is the prompt: conversations on one prompt are averaged first, and a pointwise 95 % percentile bootstrap
    over prompts gives the bounds.
    """
    by_prompt: dict[str, dict[int, list[_Means]]] = defaultdict(lambda: defaultdict(list))
    for conversation in conversations:
        for turn, judged in _means_by_turn(conversation).items():
            by_prompt[conversation.prompt_id][turn].append(judged)
    prompts = [by_prompt[name] for name in sorted(by_prompt)]
    turns = 1 + max((turn for prompt in prompts for turn in prompt), default=-1)
    table = [[prompt.get(turn, []) for prompt in prompts] for turn in range(turns)]
    rng = random.Random(f"{seed}-turn-course")
    draws = [rng.choices(range(len(prompts)), k=len(prompts)) for _ in range(_DRAWS)] if prompts else []
    return TurnMeans(
        n=[sum(map(bool, row)) for row in table],
        behaviours={name: [_point(row, name, draws) for row in table] for name in behaviours},
    )


def _means_by_turn(conversation: Conversation) -> Mapping[int, _Means]:
    """Means over the judges of each judged turn."""
    measured = (judgement for judgement in conversation.judgements if judgement.status is Status.MEASURED)
    judges = Counter(turn for judgement in measured for turn in judgement.turns)
    means: dict[int, dict[str, float]] = {turn: {} for turn in judges}
    for finding in conversation.findings:
        if finding.evidence != "unlocated" and finding.turn in means:
            own, name = means[finding.turn], finding.behaviour
            own[name] = own.get(name, 0.0) + finding.strength / judges[finding.turn]
    return means


def _point(
    row: Sequence[Sequence[_Means]], name: str, draws: Sequence[Sequence[int]]
) -> tuple[float, float, float] | None:
    """row: of each prompt what was found at this turn in the conversations on it, nothing where it was not judged."""
    values = [sum(means.get(name, 0.0) for means in judged) / len(judged) if judged else None for judged in row]
    if not (known := [value for value in values if value is not None]):
        return None
    if not any(known):
        return 0.0, 0.0, 0.0
    samples = ([value for index in draw if (value := values[index]) is not None] for draw in draws)
    resampled = sorted(sum(sample) / len(sample) for sample in samples if sample)
    at = int(_TAIL * len(resampled))
    return sum(known) / len(known), resampled[at], resampled[len(resampled) - 1 - at]
