"""How findings come and go over the turns of a conversation: a mean per turn with a band. Pure, descriptive.

The unit is the prompt: the conversations of one prompt are averaged first, and the band resamples prompts.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["turn_course"]

_DRAWS = 400
_TAIL = 0.025


def turn_course(talks: Sequence[Mapping[str, Any]], behaviours: Sequence[str], seed: int) -> dict[str, Any]:
    """Mean strength of located findings by behaviour and assistant turn (from 0), averaged over judges.

    Returns `n` (prompts judged at each turn) and `behaviours` {name: [[mean, low, high], ...]}: low and high are the
    ends of a pointwise 95 % percentile bootstrap over prompts. A turn nobody judged is None.
    """
    by_prompt: dict[str, list[Mapping[int, Mapping[str, float]]]] = {}
    for talk in talks:
        judged = _by_turn(talk)
        if judged:
            by_prompt.setdefault(talk["prompt_id"], []).append(judged)
    prompts = [by_prompt[name] for name in sorted(by_prompt)]
    turns = 1 + max((turn for group in prompts for judged in group for turn in judged), default=-1)
    # Per turn and prompt the mean over its conversations, None where none was judged there.
    table = [[_pooled(group, turn) for group in prompts] for turn in range(turns)]
    rng = random.Random(f"{seed}-turn-course")
    draws = [rng.choices(range(len(prompts)), k=len(prompts)) for _ in range(_DRAWS)] if prompts else []
    return {
        "n": [sum(cell is not None for cell in row) for row in table],
        "behaviours": {name: [_point(row, name, draws) for row in table] for name in behaviours},
    }


def _by_turn(talk: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Summed strength by judged turn and behaviour, averaged over the judges of the turn."""
    judges: dict[int, int] = {}
    for judgement in talk["judgements"]:
        if judgement["status"] == "measured":
            for turn in judgement["turns"]:
                judges[turn] = judges.get(turn, 0) + 1
    found: dict[int, dict[str, float]] = {turn: {} for turn in judges}
    for finding in talk["findings"]:
        if finding["evidence"] != "unlocated" and finding["turn"] in found:
            row = found[finding["turn"]]
            row[finding["behaviour"]] = (
                row.get(finding["behaviour"], 0.0) + finding["strength"] / judges[finding["turn"]]
            )
    return found


def _pooled(group: Sequence[Mapping[int, Mapping[str, float]]], turn: int) -> dict[str, float] | None:
    judged = [talk[turn] for talk in group if turn in talk]
    if not judged:
        return None
    names = {name for row in judged for name in row}
    return {name: sum(row.get(name, 0.0) for row in judged) / len(judged) for name in names}


def _point(row: Sequence[Mapping[str, float] | None], name: str, draws: Sequence[Sequence[int]]) -> list[float] | None:
    values = [None if cell is None else cell.get(name, 0.0) for cell in row]
    known = [value for value in values if value is not None]
    if not known:
        return None
    if not any(known):
        return [0.0, 0.0, 0.0]
    means = sorted(
        sum(drawn) / len(drawn) for draw in draws if (drawn := [v for i in draw if (v := values[i]) is not None])
    )
    at = int(_TAIL * len(means))
    return [sum(known) / len(known), means[at], means[len(means) - 1 - at]]
