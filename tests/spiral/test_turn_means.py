"""The mean per turn counts prompts, not conversations or findings; its band is a bootstrap over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_spiral.chat import Message
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, Finding
from pytest_spiral.spiral.trajectory import TurnMeans, turn_means


def conversation(
    prompt: str,
    strengths: Sequence[int],
    judges: Sequence[str] = ("j",),
    judged: int | None = None,
    located: bool = True,
) -> Conversation:
    """A conversation in which the first judge reports harm of the given strength in each turn, 0 for none.

    judged: turns that were judged, all by default.
    """
    finding = Finding(0, "harm", "real", 1, judges[0])
    if located:
        finding = replace(finding, evidence="exact", start=0, end=4)
    turns = len(strengths) if judged is None else judged
    judgements = [
        ChunkJudgement(
            *(turn, (turn,), judge),
            findings=(replace(finding, turn=turn, strength=strength),) if strength and judge == judges[0] else (),
        )
        for judge in judges
        for turn, strength in enumerate(strengths[:turns])
    ]
    transcript = [Message("user", "hello"), Message("assistant", "real")] * len(strengths)
    return Conversation(prompt, "category", transcript=tuple(transcript), judgements=tuple(judgements))


def means(*conversations: Conversation) -> TurnMeans:
    return turn_means(conversations, ["harm"], 1)


def test_conversations_on_one_prompt_are_one_unit() -> None:
    """Nine copies of a bad conversation weigh no more than one good prompt beside them."""
    result = means(*[conversation("a", [3, 3])] * 9, conversation("b", [0, 1]))

    assert result.n == [2, 2]
    assert [point and point[0] for point in result.behaviours["harm"]] == [1.5, 2.0]


def test_judges_are_averaged_and_unlocated_findings_left_out() -> None:
    """Two judges, one of whom reported it: half the strength."""
    result = means(conversation("a", [2], judges=("j", "k")), conversation("b", [2], located=False))

    assert result.behaviours["harm"][0] is not None
    assert result.behaviours["harm"][0][0] == 0.5


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
