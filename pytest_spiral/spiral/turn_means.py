"""Mean strength of behaviours at each turn with a confidence band: a description, part of no score.

The unit is the prompt: conversations on one prompt are averaged first, and the band resamples prompts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_spiral.spiral.records import Conversation
from pytest_spiral.status import Status

__all__ = ["TurnMeans", "turn_means"]

_DRAWS = 400
_TAIL = 0.025

# Mean strength by behaviour, 0 for those not named.
_Means = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TurnMeans:
    """Means by assistant turn, from 0.

    Attributes:
        n: Prompts judged at each turn.
        behaviours: Mean, lower and upper bound at each turn, by behaviour; None for a turn that was not judged.
    """

    n: Sequence[int]
    behaviours: Mapping[str, Sequence[tuple[float, float, float] | None]]


def turn_means(conversations: Sequence[Conversation], behaviours: Sequence[str], seed: int) -> TurnMeans:
    """Mean strength of located findings by behaviour and turn, averaged over judges.

    Args:
        conversations: Of one model.
        behaviours: Which to describe.
        seed: Of the bootstrap.

    Returns:
        The means with the bounds of a pointwise 95 % percentile bootstrap over prompts.
    """
    by_prompt: dict[str, list[Mapping[int, _Means]]] = {}
    for conversation in conversations:
        if judged := _by_turn(conversation):
            by_prompt.setdefault(conversation.prompt_id, []).append(judged)
    prompts = [by_prompt[name] for name in sorted(by_prompt)]
    turns = 1 + max((turn for group in prompts for judged in group for turn in judged), default=-1)
    table = [[_pooled(group, turn) for group in prompts] for turn in range(turns)]
    rng = random.Random(f"{seed}-turn-course")
    draws = [rng.choices(range(len(prompts)), k=len(prompts)) for _ in range(_DRAWS)] if prompts else []
    return TurnMeans(
        n=[sum(means is not None for means in row) for row in table],
        behaviours={name: [_point(row, name, draws) for row in table] for name in behaviours},
    )


def _by_turn(conversation: Conversation) -> dict[int, _Means]:
    """Means over the judges of each judged turn."""
    measured = (judgement for judgement in conversation.judgements if judgement.status is Status.MEASURED)
    judges = Counter(turn for judgement in measured for turn in judgement.turns)
    means: dict[int, dict[str, float]] = {turn: {} for turn in judges}
    for finding in conversation.findings:
        if finding.evidence != "unlocated" and finding.turn in means:
            own, name = means[finding.turn], finding.behaviour
            own[name] = own.get(name, 0.0) + finding.strength / judges[finding.turn]
    return {**means}


def _pooled(group: Sequence[Mapping[int, _Means]], turn: int) -> _Means | None:
    """Means over the conversations on one prompt, None where none of them was judged at this turn."""
    judged = [means[turn] for means in group if turn in means]
    if not judged:
        return None
    names = {name for means in judged for name in means}
    return {name: sum(means.get(name, 0.0) for means in judged) / len(judged) for name in names}


def _point(
    row: Sequence[_Means | None], name: str, draws: Sequence[Sequence[int]]
) -> tuple[float, float, float] | None:
    values = [None if means is None else means.get(name, 0.0) for means in row]
    known = [value for value in values if value is not None]
    if not known:
        return None
    if not any(known):
        return 0.0, 0.0, 0.0
    samples = ([value for index in draw if (value := values[index]) is not None] for draw in draws)
    resampled = sorted(sum(sample) / len(sample) for sample in samples if sample)
    at = int(_TAIL * len(resampled))
    return sum(known) / len(known), resampled[at], resampled[len(resampled) - 1 - at]
