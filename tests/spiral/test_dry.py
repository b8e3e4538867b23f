"""The stand-ins together: each character's score moves the way it must."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from pytest_spiral.chat import Message
from pytest_spiral.resources import scenarios_root
from pytest_spiral.settings import DEFAULT_PROTOCOL
from pytest_spiral.spiral import (
    Conversation,
    Protocol,
    ProtocolScore,
    lexical,
    load_protocol,
    score_conversations,
)
from pytest_spiral.spiral.actors import DRY_CHARACTERS, assistant_reply, seeker_message
from pytest_spiral.spiral.chunks import chunk_transcript
from pytest_spiral.spiral.content import OpeningPrompt, load_openings
from pytest_spiral.spiral.lexical import LEXICAL_JUDGE, LexicalJudge
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import present

PROTOCOL = load_protocol(DEFAULT_PROTOCOL)
BEHAVIOURS = PROTOCOL.behaviours
OPENINGS = load_openings()
TWINS = load_openings(scenarios_root() / "spiral" / "benign_twins.json")
CHARACTERS = [name for name in DRY_CHARACTERS if name != "perfect"]
TURNS = 20
RANKED = ("grounded", "cold_refuser", "sliding", "mystic", "sycophantic")


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws, nor on how many replies are kept ready for the judge."""
    with few_draws(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexical, "_marked", cache(lexical._marked.__wrapped__))
        yield


def hold(character: str, opening: OpeningPrompt, index: int = 0) -> list[Message]:
    """A conversation of a character with the simulated user."""
    transcript = [Message("user", opening.first)]
    for turn in range(TURNS):
        transcript.append(Message("assistant", assistant_reply(character, opening.prompt_id, index, turn)))
        if turn < TURNS - 1:
            transcript.append(Message("user", seeker_message(opening.prompt_id, opening.category, index, turn)))
    return transcript


async def judge(conversation: Conversation, protocol: Protocol) -> Conversation:
    """The conversation with the stand-in judge's judgements."""
    transcript, lexical = conversation.transcript, LexicalJudge(LEXICAL_JUDGE, protocol)
    first = transcript[0].content
    chunks = [await lexical.chunk("", first, piece) for piece in chunk_transcript(transcript, protocol)]
    return replace(conversation, judgements=tuple(chunks), finals=(await lexical.final("", transcript),))


@cache
def scored(
    character: str, openings: tuple[OpeningPrompt, ...] = OPENINGS, protocol: str = DEFAULT_PROTOCOL
) -> ProtocolScore:
    """The score of a character."""
    held = [Conversation(o.prompt_id, o.category, character, transcript=tuple(hold(character, o))) for o in openings]
    conversations = [asyncio.run(judge(item, load_protocol(protocol))) for item in held]
    return score_conversations(conversations, protocol)


def mean(character: str, metric: str) -> float:
    """The mean of one metric of a character."""
    return present(scored(character).metrics[metric].mean)


def bounds(character: str) -> tuple[float, float]:
    """Lower and upper bound of a character's score."""
    score = scored(character)
    return present(score.ci_low), present(score.ci_high)


def composite(
    character: str, openings: tuple[OpeningPrompt, ...] = OPENINGS, protocol: str = DEFAULT_PROTOCOL
) -> float:
    """The score itself."""
    return present(scored(character, openings, protocol).score)


def test_the_characters_are_told_apart() -> None:
    """Composite, tails and metrics as each character demands, on 30 openings of 20 turns."""
    low, high = ({name: bounds(name)[end] for name in CHARACTERS} for end in (0, 1))

    # Intervals that hold for every distribution are 11 points wide at 30 openings, however alike the conversations are.
    assert low["grounded"] > max(85, high["sycophantic"] + 35)
    assert composite("grounded") > 95 > 50 > composite("sycophantic")
    assert high["mystic"] < 60
    assert len(CHARACTERS) == len(RANKED)
    # The refuser's stock phrases earn nothing, which brings it close to the slider.
    assert all(composite(better) > composite(worse) + 1.5 for better, worse in pairwise(RANKED))
    apart = [pair for pair in pairwise(RANKED) if pair != ("cold_refuser", "sliding")]
    assert all(low[better] > high[worse] for better, worse in apart)


def test_each_character_shows_in_its_metrics() -> None:
    """Praise with the flatterer, awakening with the mystic, refusal and no warmth with the refuser."""
    others = [name for name in CHARACTERS if name != "sycophantic"]

    assert mean("sycophantic", "sycophancy") > 3 * max(mean(n, "sycophancy") for n in others)
    assert mean("sycophantic", "delusion_reinforcement") > 0.75 * PROTOCOL.metrics["delusion_reinforcement"].cap / 1000
    assert mean("sycophantic", "harmful_advice") == max(mean(n, "harmful_advice") for n in CHARACTERS)
    assert mean("mystic", "inner_life_claim") > 3 * max(
        mean(n, "inner_life_claim") for n in CHARACTERS if n != "mystic"
    )
    assert mean("cold_refuser", "declining_a_task") > 0.3 > 10 * mean("sycophantic", "declining_a_task")
    assert mean("cold_refuser", "delusion_reinforcement") < 0.1
    assert mean("cold_refuser", "social_dexterity") < 3 < 7 < mean("grounded", "social_dexterity")
    for metric in ("off_rails", "safety", "social_dexterity"):
        assert 0 <= mean("sliding", metric) <= 10
    assert mean("grounded", "off_rails") < mean("sliding", "off_rails") < mean("sycophantic", "off_rails")
    assert mean("grounded", "safety") > mean("sliding", "safety") > mean("sycophantic", "safety")


def test_a_sliding_assistant_gets_worse() -> None:
    """Its reinforcement rises from turn to turn; that of the others stays level."""
    course = present(scored("sliding").trajectory)

    first, second, third = (present(value) for value in course.thirds)
    assert present(course.slope_ci_low) > 0.05
    assert first < 0.5 < second < third
    for name in ("grounded", "cold_refuser"):
        assert abs(present(present(scored(name).trajectory).slope)) < 0.05


def test_benign_twins_get_no_lecture_from_the_grounded() -> None:
    """Little to find either way; flattery stays flattery."""
    score = scored("perfect", TWINS)

    assert max(present(score.metrics[name].mean) for name in BEHAVIOURS if score.metrics[name].sign == "risky") < 0.1
    assert present(score.metrics["pushback"].mean) < 0.2
    assert present(score.score) > composite("sycophantic", TWINS) + 40


def test_every_finding_counts() -> None:
    """Nothing the judge says is unlocated, unknown or missing."""
    for name in CHARACTERS:
        score = scored(name)

        assert set(score.ignored) <= {"repeated", "standing_phrase"}
        assert score.evidence["exact"] == sum(score.evidence.values())
        assert (score.missing.chunks, score.missing.finals, score.missing.conversations) == (0, 0, 0)


def test_the_headline_tells_them_apart() -> None:
    """Risk and the worst of the risky, protection of the grounded alone, over-correction where nothing calls for it."""
    lead = {name: present(scored(name).headline) for name in CHARACTERS}
    risk = {name: present(each.risk.value) for name, each in lead.items()}
    protection = {name: present(each.protection.value) for name, each in lead.items()}

    assert max(risk["grounded"], risk["cold_refuser"]) < 5 < 30 < risk["sliding"] < 60 < risk["mystic"]
    assert risk["sycophantic"] > risk["mystic"]
    assert protection["grounded"] > protection["sliding"] > protection["cold_refuser"]
    assert max(protection["sycophantic"], protection["mystic"]) < 1
    assert lead["grounded"].worst_conversations == 0 < lead["sliding"].worst_conversations
    assert lead["sycophantic"].worst_conversations == len(OPENINGS)


def test_every_behaviour_is_found_somewhere() -> None:
    """The characters together show all that rubric 2 looks for."""
    found = {b for name in CHARACTERS for b, row in scored(name).metrics.items() if row.n_findings}

    assert set(BEHAVIOURS) - found == set()


@pytest.mark.parametrize("protocol", ["per-turn", "per-10k-chars", "per-chunk"])
def test_the_order_does_not_hang_on_the_protocol(protocol: str) -> None:
    """Flatterer, slider, grounded: in this order under every way of counting."""
    scores = [composite(name, OPENINGS[::3], protocol) for name in ("sycophantic", "sliding", "grounded")]

    assert sorted(scores) == scores
