"""Near-duplicates when replies are missing: what is not known never makes a model look better than it may be."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest

from pytest_spiral.tempaffect.card import build_card
from pytest_spiral.tempaffect.card_metrics import CardMetrics, mode_delta
from pytest_spiral.tempaffect.detectors import detect
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.stand_ins import dry_output
from tests.fakes.bootstrap import few_draws
from tests.tempaffect.cards import SUITE, answers, context, item, lost

WORDS = (
    *("crane", "lamp", "river", "stone", "winter", "carpet", "engine", "violin"),
    *("garden", "letter", "bridge", "candle", "mirror", "pepper", "saddle", "tunnel"),
)


@cache
def useful(scenario: Scenario, reply: str) -> Item:
    """A useful and bounded answer with words of our own."""
    labels = json.loads(dry_output("perfect", SUITE, scenario))
    return replace(item(scenario, json.dumps({**labels, "reply": reply})), useful_bounded=True)


def set_of(replies: Sequence[str]) -> list[Item]:
    """The first scenarios of the suite with these replies."""
    return [useful(scenario, reply) for scenario, reply in zip(SUITE.scenarios, replies, strict=False)]


def value(items: Sequence[Item], metric: str = "ubr_rate_deduped", end: str | None = None) -> float:
    """A metric over the scenarios of these items, with what is missing at an end."""
    own: Mapping[str, Scenario] = {one.id: SUITE[one.id] for one in items}
    sample = CardMetrics(items, own).sample(metric)
    units = sample.filled(end)  # type: ignore[arg-type]
    assert units is not None
    return sample.statistic(units.values)


def random_replies(rng: random.Random, n: int) -> list[str]:
    """Replies of which some are alike, some are made of others, and some share a passage."""
    made: list[str] = []
    for _ in range(n):
        own = rng.choices(WORDS, k=rng.randint(4, 14))
        if made and rng.random() < 0.6:
            other = rng.choice(made).split()
            own = other + own if rng.random() < 0.4 else [word for word in other if rng.random() > 0.1] or own
        made.append(" ".join(own[:40]))
    return made


def test_duplicates_count_however_few_replies_an_epoch_has() -> None:
    """A second epoch that was cut short does not bring back the duplicates of the first."""
    whole = answers("slot_template")
    cut = [replace(one, epoch=1) for one in [*whole[:10], *(lost(SUITE[one.id]) for one in whole[10:])]]
    few = [*whole[:19], *(item(SUITE[one.id], "no JSON") for one in whole[19:])]

    with few_draws():
        card = build_card("m", "schema", whole + cut, context())
        short = build_card("m", "schema", few, context())

    assert card.useful_bounded_response_rate
    assert short.useful_bounded_response_rate
    assert (card.ubr_rate_deduped, short.ubr_rate_deduped) == (0, 0)
    assert card.detectors["template_repetition"].band == "flag"
    assert any(blocker.startswith("B07") for blocker in card.integrity.publication_blockers)
    assert short.detectors["template_repetition"].value is None


def test_a_missing_reply_may_have_been_the_duplicate_of_another() -> None:
    """Of two like ones neither counts, so the other one does not count in the worst case of one that is missing."""
    replies = [" ".join(random.Random(place).choices(WORDS, k=12)) for place in range(30)]
    items = set_of([replies[0], *replies])
    missing = [lost(SUITE.scenarios[0]), *items[1:]]

    assert value(items) == pytest.approx(29 / 31)
    assert value(missing) == 1.0
    assert value(missing, end="low") <= value(items) <= value(missing, end="high") == 1.0
    assert value(missing, "detectors.template_repetition", "high") >= value(items, "detectors.template_repetition")


@pytest.mark.parametrize("seed", range(12))
def test_no_missing_reply_raises_the_worst_or_lowers_the_best(seed: int) -> None:
    """Whatever replies are taken away: with them the numbers lie between what they may have been without."""
    rng = random.Random(seed)
    items = set_of(random_replies(rng, rng.randint(21, 60)))
    gone = set(rng.sample(range(len(items)), rng.randint(1, 3)))
    left = [lost(SUITE[one.id]) if place in gone else one for place, one in enumerate(items)]

    for metric in ("ubr_rate_deduped", "detectors.template_repetition"):
        assert value(left, metric, "low") <= value(items, metric) + 1e-9
        assert value(left, metric, "high") >= value(items, metric) - 1e-9


def test_one_reply_can_be_close_to_several_that_are_not_close_to_each_other() -> None:
    """A reply made of two is half of each; the limit allows for it and for little more."""
    first, second, *others = (" ".join(random.Random(place).choices(WORDS, k=14)) for place in range(40))
    scores = [score_output(SUITE.scenarios[0], one.output or "") for one in set_of([first, second, *others])]

    assert not any(detect(scores, 1).templated)
    assert 2 <= sum(detect(scores, 1, most=True).templated) <= 6


def test_a_card_shows_detectors_as_gates_take_them() -> None:
    """Over several epochs of which one has fewer valid answers: one number, inside its interval."""
    wrong = [item(scenario, dry_output("constant_majority", SUITE, scenario)) for scenario in SUITE.scenarios]
    mixed = [*wrong[:25], *(item(SUITE[one.id], "no JSON") for one in wrong[25:])]
    items = [*answers("perfect"), *(replace(one, epoch=1) for one in mixed)]
    metrics = CardMetrics(items, SUITE.by_id)

    with few_draws():
        card = build_card("m", "schema", items, context())

    for name, row in card.detectors.items():
        interval = card.intervals[f"detectors.{name}"]
        assert row.value == metrics.value(f"detectors.{name}")
        assert interval.low - 1e-9 <= (row.value or 0.0) <= interval.high + 1e-9


def test_a_difference_of_modes_counts_every_scenario_once() -> None:
    """With a scenario of which one epoch is missing the value is that of the interval, and its parts add up."""
    first, second = SUITE.scenarios[:2]
    right, wrong = (item(one, dry_output("perfect", SUITE, one)) for one in (first, second)), item(second, "no JSON")
    schema = [one for found in right for one in (found, replace(found, epoch=1))][:3]
    raw = [*schema[:2], wrong]

    delta = mode_delta(schema, raw, SUITE.by_id, 1)["valid_output_rate"]

    assert (delta.value, delta.n) == (0.5, 3)
    assert delta.format_part + delta.content_part + delta.lost_part == pytest.approx(delta.value)
