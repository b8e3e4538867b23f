"""Replies that repeat the situation: found, counted on the card, and no publication with more than a few."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_spiral.report.model import Card
from pytest_spiral.tempaffect.card import build_card
from pytest_spiral.tempaffect.copying import copied_share
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import load_suite
from tests.fakes.bootstrap import few_draws
from tests.fakes.growth import assert_linear
from tests.tempaffect.cards import SUITE, answers, context, item

LIMIT = load_params().publication.copied_share / 1000
REPLIES_1_0 = Path(__file__).parent / "data" / "replies_1.0.jsonl"
SCENARIOS_1_0 = Path(__file__).parents[2] / "benchmarks" / "field_trial" / "scenarios_1.0.json"


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws."""
    with few_draws():
        yield


def first_person(scenario: Scenario) -> str:
    """The situation, said by the assistant."""
    return re.sub(r"(?i)\bthe (?:assistant|agent|desk) (?:can|may)\b", "I will", scenario.agent_context)


def copying(scenario: Scenario) -> str:
    """Right labels and the situation for a reply."""
    return json.dumps({**json.loads(dry_output("perfect", SUITE, scenario)), "reply": first_person(scenario)[:420]})


def card_with(copies: int) -> Card:
    """A card of which so many replies are copies."""
    items = answers("perfect")
    items[:copies] = [item(scenario, copying(scenario)) for scenario in SUITE.scenarios[:copies]]
    return build_card("m", "schema", items, context())


@pytest.mark.parametrize("tail", ["", " I'll keep you posted."])
def test_every_copy_is_found(tail: str) -> None:
    """Verbatim or said in the first person, with or without a friendly last line."""
    for scenario in SUITE.scenarios:
        for text in (scenario.agent_context, first_person(scenario)):
            assert copied_share(scenario.agent_context, text + tail) >= LIMIT


def test_no_honest_reply_is_taken_for_a_copy() -> None:
    """None of the reference replies and of 1,350 replies that were written for version 1.0."""
    answered = load_suite([SCENARIOS_1_0])
    rows = map(json.loads, REPLIES_1_0.read_text(encoding="utf-8").splitlines())
    shares = [copied_share(answered[row["id"]].agent_context, row["reply"]) for row in rows]

    assert len(shares) >= 1_350
    assert max(shares) < LIMIT
    assert max(copied_share(s.agent_context, s.reference_reply) for s in SUITE.scenarios) < LIMIT


def test_a_copyist_is_not_published() -> None:
    """A few copies are on the card; more than 1 in 20 block publication."""
    few, many = card_with(3), card_with(4)

    assert few.copied_context == pytest.approx(3 / 75)
    assert few.integrity.publication_ready
    assert many.copied_context == pytest.approx(4 / 75)
    assert many.integrity.publication_blockers == ("B13 5.3% of the replies are mostly copied from the situation",)


def test_short_and_empty_replies() -> None:
    """Shorter than a run, nothing is copied."""
    assert copied_share("one two three four five", "") == 0
    assert copied_share("one two three four five", "one two three") == 0
    assert copied_share("one two three four five", "One, two: three four!") == 1


@pytest.mark.parametrize("unit", ["a ", "one two three four ", "= "])
def test_it_grows_with_the_reply(unit: str) -> None:
    """Whatever the reply repeats."""
    situation = "one two three four five six"
    assert_linear(lambda text: copied_share(situation, text), lambda size: unit * (size // len(unit)), 5_000)
