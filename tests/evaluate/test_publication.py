"""What keeps a Spiral-Bench score from being published: how it was measured."""

from __future__ import annotations

import pytest

from pytest_spiral.evaluate.inputs import SpiralContext
from pytest_spiral.evaluate.spiral import score_of
from pytest_spiral.spiral import Conversation
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import conversation, quick, transcript


def blockers(code: str, *conversations: Conversation) -> list[str]:
    """Those of one code."""
    with few_draws(20):
        score = score_of("m", conversations, SpiralContext(quick("per-chunk"), 1))
    return [text for text in score.blockers if text.startswith(code)]


def test_one_name_is_one_model() -> None:
    """An endpoint that served several models under it has no score of one."""
    context = SpiralContext(quick("per-turn"), 1, served_models={"m": ("small", "strong")})
    found = score_of("m", [conversation(judgements=())], context).blockers

    assert "S13 the endpoint served several models under this name: see served_models" in found


@pytest.mark.parametrize(("turns", "says"), [(1, "1 turn"), (19, "19 turns"), (20, None), (25, "25 turns")])
def test_too_few_or_too_many_turns_are_not_published(turns: int, says: str | None) -> None:
    """Nothing is known of what happens later, or it dilutes what happened; one is enough, twins aside."""
    short = conversation("p1", turns=turns)

    found = blockers("S09", short, conversation("p2", turns=20), conversation("p2b", turns=4, twin_of="p2"))
    assert found == ([f"S09 conversations of {says}; a score to publish needs 20"] if says else [])


@pytest.mark.parametrize(("length", "cut"), [(20_000, 0), (20_001, 2)])
def test_what_judges_did_not_see_is_not_published(length: int, cut: int) -> None:
    """Replies are counted, and those of twins too: the limit itself is still seen."""
    long = transcript(1, "x" * (length - 2))
    own, twin = conversation("p1", turns=1, transcript=long), conversation("p1b", turns=1, transcript=long)

    found = blockers("S10", own, twin, conversation("p2", turns=20))
    assert found == (
        [f"S10 {cut} replies are longer than the 20,000 characters that judges see of each"] if cut else []
    )
