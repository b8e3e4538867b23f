"""Suite-level detectors: what repeats, what is hollow, and what natural variety they leave alone."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.tempaffect.detectors import Pair, detect, overuse, repetition
from pytest_spiral.tempaffect.records import ItemScore
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import load_suite


def scored(name: str) -> list[ItemScore]:
    suite = load_suite()
    return [score_output(scenario, dry_output(name, suite, scenario)) for scenario in suite.scenarios]


def with_replies(replies: Sequence[str]) -> list[ItemScore]:
    """The reference labels with replies of our own, in suite order."""
    suite = load_suite()
    outputs = []
    for scenario, reply in zip(suite.scenarios, replies, strict=True):
        labels = json.loads(dry_output("perfect", suite, scenario))
        outputs.append(score_output(scenario, json.dumps({**labels, "reply": reply})))
    return outputs


@pytest.fixture(scope="module")
def references() -> list[str]:
    return [scenario.reference_reply for scenario in load_suite().scenarios]


def template_value(replies: Sequence[str]) -> float | None:
    """The detector's value."""
    return detect(with_replies(replies)).detections["template_repetition"].value


def test_authored_replies_are_no_template() -> None:
    """75 replies written one by one are all ok."""
    result = detect(scored("perfect"))

    assert {name: row.band for name, row in result.detections.items()} == dict.fromkeys(result.detections, "ok")
    assert result.detections["template_repetition"].long_frame_share == 0


FRAME = "Thanks for telling me about {0}. I will take care of {0} right away and come back to you with {1} before long."


@pytest.mark.parametrize("share", [0.3, 0.5, 1.0])
def test_a_template_over_part_of_the_suite_is_found_in_that_part(references: list[str], share: float) -> None:
    """A frame filled from the scenario is counted where it is used, and nowhere else."""
    scenarios = load_suite().scenarios
    using = round(share * 75)
    replies = [
        FRAME.format(s.expected.reply.issue_anchors[0].any[0], s.expected.reply.action_targets[0])
        if i < using
        else reply
        for i, (s, reply) in enumerate(zip(scenarios, references, strict=True))
    ]

    assert template_value(replies) == pytest.approx(share, abs=0.08)


def test_a_long_shared_frame_is_flagged_however_much_is_added(references: list[str]) -> None:
    """Diluting a template with the scenario's own words does not hide its frame."""
    frame = " Before we go on, please know that every single step from here on is written down and shared."
    result = detect(with_replies([reply + frame for reply in references]))

    assert result.detections["template_repetition"].long_frame_share is not None
    assert result.detections["template_repetition"].long_frame_share >= 0.95
    assert result.detections["template_repetition"].band == "flag"


def test_too_few_replies_give_no_value() -> None:
    """Below the least number of valid replies a detector says nothing rather than something."""
    result = detect(scored("perfect")[:19])

    assert all(row.value is None and row.band == "not_enough_replies" for row in result.detections.values())


def test_invalid_outputs_are_left_out() -> None:
    """Detectors look at answers, not at failures."""
    assert detect(scored("malformed")).detections["overvalidation"].n == 0


@given(st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=20)
def test_order_does_not_matter(rng: random.Random) -> None:
    """The same replies in another order give the same values."""
    replies = scored_once()
    shuffled = list(replies)
    rng.shuffle(shuffled)

    assert detect(shuffled).detections == detect(replies).detections


@cache
def scored_once() -> list[ItemScore]:
    """Forty scored outputs."""
    return scored("random_valid")[:40]


def pairs(predictions: Sequence[str], expected: Sequence[str]) -> Counter[Pair]:
    return Counter((p, (e,)) for p, e in zip(predictions, expected, strict=True))


def test_repetition_and_overuse_by_hand() -> None:
    """Constant predictions over a balanced key: fully repetitive, and half of them wrong."""
    key = ["act", "close"] * 20

    assert repetition(pairs(["act"] * 40, key)) == 1.0
    assert repetition(pairs(key, key)) == 0.0
    assert overuse(pairs(["act"] * 40, key)) == 0.5
    assert overuse(pairs(key, key)) == 0.0
    assert repetition(pairs(["act"], ["act"])) == 0.0
    assert overuse(Counter()) == 0.0


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), min_size=1, max_size=60))
def test_repetition_and_overuse_are_shares(rows: list[tuple[str, str]]) -> None:
    """Both stay within 0..1 whatever is predicted."""
    counts = pairs([p for p, _ in rows], [e for _, e in rows])

    assert 0 <= repetition(counts) <= 1
    assert 0 <= overuse(counts) <= 1


def test_random_errors_stay_below_the_watch_line() -> None:
    """Errors spread at random over the strategies are no overuse."""
    rng = random.Random(5)
    key = [s.expected.response_strategy[0] for s in load_suite().scenarios]
    values = []
    for _ in range(200):
        predicted = [k if rng.random() < 0.7 else rng.choice(key) for k in key]
        values.append(overuse(pairs(predicted, key)))

    assert sorted(values)[197] < 0.15
