"""Cards: what is missing stays missing, invalid outputs count as 0, and every rate has its interval."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pydantic import TypeAdapter

from pytest_spiral.errors import DataError
from pytest_spiral.report.model import Card
from pytest_spiral.status import ReasonCode, Status
from pytest_spiral.tempaffect.card import build_card
from pytest_spiral.tempaffect.card_metrics import OUTPUT_METRICS, CardMetrics, metric_names, mode_delta
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import CardContext, Item
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import CANARY
from tests.fakes.bootstrap import few_draws
from tests.tempaffect.cards import OTHER_HASH, SUITE, answers, context, item, lost


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws."""
    with few_draws():
        yield


def card_of(items: list[Item], result: CardContext | None = None) -> Card:
    """The card of a model under an enforced schema."""
    return build_card("m", "schema", items, result or context())


def codes(card: Card) -> list[str]:
    """Codes of the blockers."""
    return [blocker[:3] for blocker in card.integrity.publication_blockers]


def test_a_clean_card_may_be_published() -> None:
    """Everything in order: no blocker, no caution, all rates 1."""
    card = card_of(answers("perfect"))

    assert card.integrity.publication_blockers == ()
    assert card.integrity.publication_ready
    assert card.cautions == ()
    assert card.score == 1.0
    assert card.families["pressured_integrity"].n == 25


def test_every_metric_of_outputs_may_be_gated() -> None:
    """A card has the value of each, its families of all but the share of valid outputs."""
    card = card_of(answers("perfect"))
    of_families = {f"families.pressured_integrity.{name}" for name in OUTPUT_METRICS if name != "valid_output_rate"}

    assert {*OUTPUT_METRICS, *of_families} <= {*metric_names()} & {*card.intervals}
    assert [name for name in (*OUTPUT_METRICS, *of_families) if card.value(name) is None] == []


def test_invalid_outputs_count_as_0() -> None:
    """Three invalid outputs of 75 lower every rate, and stay in the denominator."""
    items = answers("perfect")
    items[:3] = [item(scenario, "no JSON") for scenario in SUITE.scenarios[:3]]

    card = card_of(items)

    assert card.score == pytest.approx(72 / 75)
    assert card.valid_output_rate == pytest.approx(72 / 75)
    assert card.intervals["valid_output_rate"].n == 75
    assert card.given_valid["score"] == 1.0
    assert card.reasons == {ReasonCode.NOT_JSON: 3}
    assert codes(card) == ["B06"]


def test_two_scored_scenarios_have_a_card() -> None:
    """All others lost: the intervals of one right and one wrong answer span both."""
    first, second, *others = SUITE.scenarios
    items = [item(first, dry_output("perfect", SUITE, first)), item(second, "no JSON"), *map(lost, others)]

    card = card_of(items)

    assert card.score == 0.5
    assert (card.intervals["score"].low, card.intervals["score"].high) == (0.0, 1.0)
    assert mode_delta(items, answers("perfect", "raw"), SUITE.by_id, 1)


def test_instrument_failures_are_missing_not_0() -> None:
    """Two lost calls leave the rates of the others alone, and are listed."""
    items = answers("perfect")
    items[:2] = [lost(scenario) for scenario in SUITE.scenarios[:2]]

    card = card_of(items)

    assert card.score == 1.0
    assert card.intervals["useful_bounded_response_rate"].n == 73
    assert (card.missing.n, card.missing.of) == (2, 75)
    assert card.missing.ids == tuple(scenario.id for scenario in SUITE.scenarios[:2])
    assert card.counts[Status.INSTRUMENT_FAILED] == 2
    assert codes(card) == ["B01", "B04"]


def test_nothing_measured_gives_no_number() -> None:
    """Without a single answer every rate is None, not 0."""
    card = card_of([lost(scenario) for scenario in SUITE.scenarios])

    assert (card.score, card.skill) == (None, None)
    assert card.intervals == {}
    detector = card.detectors["overvalidation"]
    assert (detector.value, detector.band, detector.n) == (None, "not_enough_replies", 0)
    assert card.missing.n == 75


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        (context(pinned_suite_hash=OTHER_HASH), "B02"),
        (context(pinned_scorer_fingerprint=OTHER_HASH), "B03"),
        (context(preflight_faults=("dry/echo: useful is 0.5",)), "B03"),
        (context(built_in=True), "B05"),
        (context(served_models=()), "B05"),
        (context(served_models=("a", "b")), "B05"),
        (context(enforcement_verified=None), "B06"),
        (context(enforcement_verified=False), "B06"),
        (context(partner_present=False), "B10"),
        (context(own=True), "B11"),
    ],
)
def test_each_circumstance_blocks_under_its_code(changed: CardContext, code: str) -> None:
    """One thing wrong is one blocker."""
    card = card_of(answers("perfect"), changed)

    assert codes(card) == [code]
    assert not card.integrity.publication_ready


def test_templates_and_leaks_block() -> None:
    """A templated model may do well item by item and is not publishable; nor is one that knows the suite."""
    leaking = answers("perfect")
    leaking[0] = item(SUITE.scenarios[0], f"{CANARY} {leaking[0].output}")

    templated = card_of(answers("slot_template"))

    assert "B07" in codes(templated)
    assert templated.ubr_rate_deduped == 0
    assert "B08" in codes(card_of(leaking))


def test_low_quality_is_no_blocker() -> None:
    """A hollow model is published, with its cautions."""
    card = card_of(answers("overempathic"))

    assert set(codes(card)) <= {"B07"}
    assert any("overvalidation" in caution for caution in card.cautions)


def test_every_metric_has_an_interval_around_its_value() -> None:
    """No number without its uncertainty, and the number lies inside."""
    items = answers("random_valid")
    card = card_of(items)

    for metric in metric_names():
        value = CardMetrics(items, SUITE.by_id, context().skill_floor).value(metric)
        interval = card.intervals[metric]
        assert value is not None
        assert interval.low - 1e-9 <= value <= interval.high + 1e-9, metric
        own = [
            one for one in SUITE.scenarios if not metric.startswith("families.") or one.family == metric.split(".")[1]
        ]
        bounded = [one for one in own if one.expected.boundary_action != "continue_helping"]
        assert interval.n == len(bounded if metric.endswith("boundary_held") else own)


def without_keys(*kept: str) -> dict[str, Scenario]:
    """The suite without decision keys, but for those of the scenarios named."""
    return {
        name: one if name in kept else one.model_copy(update={"expected": replace(one.expected, decision=None)})
        for name, one in SUITE.by_id.items()
    }


def answered(scenarios: dict[str, Scenario], name: str = "perfect") -> list[Item]:
    """What a built-in model answers to scenarios of the suite whose keys may have changed."""
    return [item(one, dry_output(name, SUITE, SUITE[key])) for key, one in scenarios.items()]


def test_without_decision_keys_usefulness_is_not_measured() -> None:
    """Neither 0 nor 1, and the card says so; score and blockers do not change by it."""
    scenarios = without_keys()

    card = card_of(answered(scenarios), context(scenarios=scenarios))

    assert card.score == 1.0
    assert card.useful_bounded_response_rate is None
    assert (card.ubr_rate_deduped, card.right_decision, card.boundary_held, card.label_reply_mismatch) == (None,) * 4
    assert card.families["pressured_integrity"].useful_bounded_response_rate is None
    assert "useful_bounded_response_rate" not in card.intervals
    assert card.cautions == ("useful and bounded is not measured: the scenarios have no decision key",)
    assert card.integrity.publication_blockers == ()


def test_of_a_mixed_file_the_scenarios_with_keys_are_measured() -> None:
    """An answer that is lost is missing where its scenario has a key, and nowhere else."""
    scenarios = without_keys("ps-01", "ps-03", "pi-01")
    items = answered(scenarios)
    items[items.index(next(one for one in items if one.id == "pi-01"))] = lost(scenarios["pi-01"])
    items[items.index(next(one for one in items if one.id == "rm-01"))] = lost(scenarios["rm-01"])

    card = card_of(items, context(scenarios=scenarios))
    sample = CardMetrics(items, scenarios).sample("useful_bounded_response_rate")

    assert card.intervals["useful_bounded_response_rate"].n == card.intervals["right_decision"].n == 2
    assert (sample.missing, sample.wanted) == (1, 3)
    assert card.useful_bounded_response_rate == 1.0
    assert "useful and bounded is measured on 3 of 75 scenarios; the others have no decision key" in card.cautions


def test_what_label_and_reply_say_is_compared() -> None:
    """A caver's labels decline and its replies do it; a reply that declines under a helping label is the reverse."""
    scenario = SUITE["pi-01"]
    caving = item(scenario, dry_output("caver", SUITE, scenario))
    helping = {**json.loads(dry_output("perfect", SUITE, scenario)), "boundary_action": "continue_helping"}
    declining = item(scenario, json.dumps({**helping, "reply": "I can't put 46 in for Sunday."}))
    card = card_of(answers("caver"))

    assert caving.mismatch == "declines_and_does"
    assert declining.mismatch == "continues_and_declines"
    assert {one.mismatch for one in answers("perfect")} == {None}
    assert card.families["pressured_integrity"].label_reply_mismatch == pytest.approx(0.9, abs=0.1)
    assert card.families["pressured_integrity"].boundary_held == pytest.approx(0.1, abs=0.1)
    assert card.families["pressured_integrity"].fields["boundary_action"] == 1.0


def test_score_is_the_weighted_share() -> None:
    """All labels right and all checks failed is 8 of 13 points."""
    scenario = SUITE.scenarios[0]
    output = json.loads(dry_output("perfect", SUITE, scenario))

    hollow = item(scenario, json.dumps({**output, "reply": "Hm."}))

    assert hollow.score is not None
    assert sum(load_params().weights.values()) == 13
    assert 8 / 13 <= hollow.score < 1
    assert hollow.score == sum(hollow.points.values()) / 13


def test_epochs_are_clusters_not_items() -> None:
    """Asking twice does not double the sample: intervals still rest on 75 scenarios."""
    card = card_of(answers("perfect") + answers("random_valid", epoch=1))

    useful = card.intervals["useful_bounded_response_rate"]
    assert card.epochs == 2
    assert card.intervals["valid_output_rate"].n == 75
    assert useful.method != "wilson"
    assert useful.k is None
    assert card.useful_bounded_response_rate == pytest.approx(0.5)
    assert card.missing.n == 0


@pytest.mark.parametrize("metric", ["families.nonsense.score", "families.score", "nonsense"])
def test_an_unknown_metric_is_a_key_error(metric: str) -> None:
    """A family that there is not has no sample, not even an empty one."""
    with pytest.raises(KeyError):
        CardMetrics(answers("perfect"), SUITE.by_id).sample(metric)


def test_a_lost_epoch_is_a_gap_in_its_scenario() -> None:
    """Two epochs, one measurement of the second lost: the scenario's mean then lies between the two extremes."""
    items = answers("perfect") + answers("perfect", epoch=1)[1:]

    sample = CardMetrics(items, SUITE.by_id).sample("score")
    low, high = sample.filled("low"), sample.filled("high")

    assert (sample.missing, sample.wanted) == (1, 150)
    assert low is not None
    assert high is not None
    assert len(low) == len(sample.units) == 75
    assert low.values[0] == pytest.approx(0.5 * sample.units.values[0])
    assert sum(high.values) >= sum(sample.units.values) > sum(low.values)


def test_variance_separates_scenarios_from_reruns() -> None:
    """With one epoch there is one source of noise, with two there are two; the advice says what to spend on."""
    once = card_of(answers("random_valid")).variance["score"]
    twice = card_of(answers("perfect") + answers("random_valid", epoch=1)).variance["score"]

    assert once is not None
    assert twice is not None
    assert (once.rerun, once.icc, once.n) == (None, None, 75)
    assert "--epochs" in once.advice
    assert twice.rerun is not None
    assert twice.rerun_mde is not None
    assert {step.what for step in twice.next} == {"twice the scenarios", "twice --epochs"}


def test_the_delta_splits_into_its_parts() -> None:
    """Format, content and lost parts add up to the difference."""
    raw = answers("malformed", "raw")[:30] + answers("random_valid", "raw")[30:]

    delta = mode_delta(answers("perfect"), raw, SUITE.by_id, seed=1)

    for row in delta.values():
        assert row.format_part + row.content_part + row.lost_part == pytest.approx(row.value)
        assert row.low - 1e-9 <= row.value <= row.high + 1e-9
    assert delta["valid_output_rate"].format_part == pytest.approx(30 / 75)
    assert delta["valid_output_rate"].content_part == 0


def test_an_item_survives_its_way_to_the_controller() -> None:
    """What a worker sends is what the controller reads, invalid and lost items too."""
    items = TypeAdapter(Item)
    for sent in [*answers("perfect")[:3], *answers("malformed")[:30], lost(SUITE.scenarios[0])]:
        assert items.validate_json(items.dump_json(sent)) == sent


def test_a_scored_item_needs_its_scenario() -> None:
    """An item of another suite is refused by name; one that was not scored needs no scenario."""
    scored = answers("perfect")[0]

    assert scored.scored(SUITE.by_id) == score_output(SUITE[scored.id], scored.output or "")
    assert lost(SUITE.scenarios[0]).scored({}) is None
    with pytest.raises(DataError, match=f"item {scored.id}: unknown scenario"):
        scored.scored({})
