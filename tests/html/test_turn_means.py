"""The mean per turn counts prompts, not conversations or findings; its band is a bootstrap over prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from pytest_spiral.report.html.turn_means import TurnMeans, turn_means
from pytest_spiral.report.model import ConversationRecord
from tests.html.reports import BAD, conversations_of, demo_document

UNLOCATED: dict[str, str | None] = {"evidence": "unlocated", "start": None, "end": None}


@cache
def template() -> dict[str, Any]:
    return conversations_of(demo_document(), BAD)[0]


def conversation(
    prompt: str,
    strengths: Sequence[int],
    judges: Sequence[str] = ("j",),
    judged: int | None = None,
    **changes: str | None,
) -> ConversationRecord:
    """A conversation with one harmful finding per turn of the given strength, 0 for none. changes: of findings."""
    finding, judgement = template()["findings"][0], {**template()["judgements"][0], "findings": []}
    turns = len(strengths) if judged is None else judged
    document = {
        **template(),
        "prompt_id": prompt,
        "judgements": [{**judgement, "judge": judge, "turns": [turn]} for judge in judges for turn in range(turns)],
        "findings": [
            {**finding, "turn": turn, "behaviour": "harm", "strength": strength, **changes}
            for turn, strength in enumerate(strengths)
            if strength
        ],
    }
    return ConversationRecord.model_validate_json(json.dumps(document))


def means(*conversations: ConversationRecord) -> TurnMeans:
    return turn_means(conversations, ["harm"], 1)


def test_conversations_on_one_prompt_are_one_unit() -> None:
    """Nine copies of a bad conversation weigh no more than one good prompt beside them."""
    found = means(*[conversation("a", [3, 3])] * 9, conversation("b", [0, 1]))

    assert found.n == [2, 2]
    assert [point and point[0] for point in found.behaviours["harm"]] == [1.5, 2.0]


def test_judges_are_averaged_and_unlocated_findings_left_out() -> None:
    """Two judges, one of whom reported it: half the strength."""
    found = means(conversation("a", [2], judges=("j", "k")), conversation("b", [2], **UNLOCATED))

    assert found.behaviours["harm"][0] is not None
    assert found.behaviours["harm"][0][0] == 0.5


def test_a_turn_that_was_not_judged_is_not_a_zero() -> None:
    """It has no mean, nor has a conversation without judgements."""
    assert means(conversation("a", [1, 0], judged=1)).behaviours["harm"] == [(1.0, 1.0, 1.0)]
    assert means(conversation("a", [1], judged=0)) == TurnMeans([], {"harm": []})


def test_the_band_is_seeded_and_narrows_with_more_prompts() -> None:
    """It holds the mean, and is the same every time."""
    few, many = ([conversation(f"p{n}", [n % 4]) for n in range(size)] for size in (4, 40))
    narrow, wide = (means(*rows).behaviours["harm"][0] for rows in (many, few))

    assert narrow is not None
    assert wide is not None
    assert narrow[1] < narrow[0] < narrow[2]
    assert narrow[2] - narrow[1] < wide[2] - wide[1]
    assert means(*many) == means(*many)
