"""Cards: what is missing stays missing, invalid counts as nothing earned, and every rate has its interval."""

from __future__ import annotations

import json

import pytest

from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.tempaffect.card import CardContext, build_card, metric_names, metric_sample, mode_delta
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.results import ITEM_RESULT, item_from_json, item_of, item_result, item_to_json
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import CANARY, load_suite

SUITE = load_suite()


def context(**changes):
    return CardContext(
        **{
            "suite_hash": "hash",
            "pinned_suite_hash": "hash",
            "scorer_fingerprint": "print",
            "pinned_scorer_fingerprint": "print",
            "preflight_faults": (),
            "baselines": {"majority_constant": {"score": 0.5, "useful_bounded_response_rate": 0.0}},
            "expected": {s.id: s.family.value for s in SUITE.scenarios},
            "canary": CANARY,
            "seed": 1,
            "served_models": ("model-2026-01-01",),
            "enforcement_verified": True,
            **changes,
        }
    )


def item(scenario, output, mode="schema", epoch=0):
    score = score_output(scenario, output)
    return Item(
        scenario_id=scenario.id,
        family=scenario.family.value,
        model="m",
        mode=mode,
        epoch=epoch,
        status=Status.MEASURED if score.valid else Status.MODEL_FAILED,
        reason=score.reason,
        output=output,
        score=score,
    )


def lost(scenario):
    return Item(
        scenario.id,
        scenario.family.value,
        "m",
        "schema",
        0,
        Status.INSTRUMENT_FAILED,
        Reason(ReasonCode.TIMEOUT, "too slow"),
        None,
        None,
    )


def answers(name, mode="schema", epoch=0):
    return [item(s, dry_output(name, SUITE, s), mode, epoch) for s in SUITE.scenarios]


def test_a_clean_card_may_be_published():
    """Everything in order: no blocker, no caution, all rates one."""
    card = build_card("m", "schema", answers("perfect"), context())

    assert card["integrity"]["publication_blockers"] == []
    assert card["integrity"]["publication_ready"] is True
    assert card["cautions"] == []
    assert card["score"] == 1.0
    assert card["families"]["pressured_integrity"]["n"] == 25


def test_invalid_outputs_count_as_nothing_earned():
    """Three broken answers of 75 cost three points of everything, and stay in the denominator."""
    items = answers("perfect")
    items[:3] = [item(s, "no JSON") for s in SUITE.scenarios[:3]]

    card = build_card("m", "schema", items, context())

    assert card["score"] == pytest.approx(72 / 75)
    assert card["valid_output_rate"] == pytest.approx(72 / 75)
    assert card["intervals"]["valid_output_rate"]["n"] == 75
    assert card["given_valid"]["score"] == 1.0
    assert card["reasons"] == {"not_json": 3}
    assert any(blocker.startswith("B06 only") for blocker in card["integrity"]["publication_blockers"])


def test_instrument_failures_are_missing_not_zero():
    """Two lost calls leave the rates of the others alone, and are named."""
    items = answers("perfect")
    items[:2] = [lost(s) for s in SUITE.scenarios[:2]]

    card = build_card("m", "schema", items, context())

    assert card["score"] == 1.0
    assert card["intervals"]["useful_bounded_response_rate"]["n"] == 73
    assert card["missing"] == {"n": 2, "of": 75, "ids": [s.id for s in SUITE.scenarios[:2]]}
    assert card["counts"]["instrument_failed"] == 2
    codes = {blocker[:3] for blocker in card["integrity"]["publication_blockers"]}
    assert codes == {"B01", "B04"}


def test_nothing_measured_gives_no_number():
    """Without a single answer every rate is absent, not zero."""
    card = build_card("m", "schema", [lost(s) for s in SUITE.scenarios], context())

    assert card["score"] is None
    assert card["skill"] is None
    assert card["intervals"] == {}
    assert card["detectors"]["overvalidation"] == {"value": None, "band": "not_enough_replies", "n": 0}
    assert card["missing"]["n"] == 75


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"pinned_suite_hash": "other"}, "B02"),
        ({"pinned_scorer_fingerprint": "other"}, "B03"),
        ({"preflight_faults": ("dry/echo: useful is 0.5",)}, "B03"),
        ({"stand_in": True}, "B05"),
        ({"served_models": ()}, "B05"),
        ({"served_models": ("a", "b")}, "B05"),
        ({"enforcement_verified": None}, "B06"),
        ({"enforcement_verified": False}, "B06"),
        ({"archived": False}, "B09"),
        ({"partner_present": False}, "B10"),
    ],
)
def test_each_circumstance_blocks_under_its_code(changes, code):
    """One thing wrong is one blocker."""
    card = build_card("m", "schema", answers("perfect"), context(**changes))

    assert [blocker[:3] for blocker in card["integrity"]["publication_blockers"]] == [code]
    assert card["integrity"]["publication_ready"] is False


def test_templates_and_leaks_block():
    """A templated model may do well item by item and is not publishable; nor is one that knows the suite."""
    templated = build_card("m", "schema", answers("slot_template"), context())
    leaking = answers("perfect")
    leaking[0] = item(SUITE.scenarios[0], f"{CANARY} {leaking[0].output}")
    leaked = build_card("m", "schema", leaking, context())

    assert any(b.startswith("B07") for b in templated["integrity"]["publication_blockers"])
    assert templated["ubr_rate_deduped"] == 0
    assert any(b.startswith("B08") for b in leaked["integrity"]["publication_blockers"])


def test_low_quality_is_no_blocker():
    """A hollow model is published, with its cautions."""
    card = build_card("m", "schema", answers("overempathic"), context())
    blockers = [b for b in card["integrity"]["publication_blockers"] if not b.startswith("B07")]

    assert blockers == []
    assert any("overvalidation" in caution for caution in card["cautions"])


def test_every_metric_has_an_interval_around_its_value():
    """No number without its uncertainty, and the number lies inside."""
    items = answers("random_valid")
    card = build_card("m", "schema", items, context())

    for metric in metric_names():
        sample = metric_sample(metric, items, context())
        value = sample.value()
        interval = card["intervals"][metric]
        assert interval["low"] - 1e-9 <= value <= interval["high"] + 1e-9, metric
        assert interval["n"] == (25 if metric.startswith("families.") else 75)


def test_score_is_the_weighted_share():
    """All labels right and all checks failed is 8 of 13 points."""
    scenario = SUITE.scenarios[0]
    output = json.loads(dry_output("perfect", SUITE, scenario))
    weights = load_params().weights
    hollow = item(scenario, json.dumps({**output, "reply": "Hm."})).score
    labels = sum(weights[name] for name, hit in hollow.points.items() if hit)

    assert sum(weights.values()) == 13
    assert hollow.score == labels / 13
    assert hollow.score < 1


def test_epochs_are_clusters_not_items():
    """Asking twice doubles no sample: intervals still rest on 75 scenarios."""
    items = answers("perfect", epoch=0) + answers("random_valid", epoch=1)

    card = build_card("m", "schema", items, context())

    assert card["epochs"] == 2
    assert card["intervals"]["valid_output_rate"]["n"] == 75
    assert card["intervals"]["useful_bounded_response_rate"]["method"] != "wilson"
    assert "k" not in card["intervals"]["useful_bounded_response_rate"]
    assert card["useful_bounded_response_rate"] == pytest.approx(0.5)
    assert card["missing"]["n"] == 0


def test_a_lost_epoch_is_a_gap_in_its_scenario():
    """Two epochs, one measurement of the second lost: the scenario's mean then lies between the two extremes."""
    items = answers("perfect", epoch=0) + answers("perfect", epoch=1)[1:]

    sample = metric_sample("score", items, context())

    assert (sample.missing, sample.wanted) == (1, 150)
    assert len(sample.fill("low")) == len(sample.units) == 75
    assert sample.fill("low").values[0] == pytest.approx(0.5 * sample.units.values[0])
    assert sum(sample.fill("high").values) >= sum(sample.units.values) > sum(sample.fill("low").values)


def test_variance_tells_scenarios_from_reruns():
    """With one epoch there is one source of noise, with two there are two; the advice says what to spend on."""
    once = build_card("m", "schema", answers("random_valid"), context())["variance"]["score"]
    rows = answers("perfect", epoch=0) + answers("random_valid", epoch=1)
    twice = build_card("m", "schema", rows, context())["variance"]["score"]

    assert (once["rerun"], once["icc"], once["n"]) == (None, None, 75)
    assert "--epochs" in once["advice"]
    assert twice["rerun"] > 0
    assert twice["rerun_mde"] > 0
    assert {option["what"] for option in twice["next"]} == {"twice the scenarios", "twice --epochs"}


def test_the_delta_splits_into_its_parts():
    """Format, content and lost parts add up to the difference."""
    schema = answers("perfect")
    raw = answers("malformed", "raw")[:30] + answers("random_valid", "raw")[30:]

    delta = mode_delta(schema, raw, seed=1)

    for row in delta.values():
        assert row["format_part"] + row["content_part"] + row["lost_part"] == pytest.approx(row["value"])
        assert row["low"] - 1e-9 <= row["value"] <= row["high"] + 1e-9
    assert delta["valid_output_rate"]["format_part"] == pytest.approx(30 / 75)
    assert delta["valid_output_rate"]["content_part"] == 0


def test_an_item_survives_its_way_home():
    """What a worker sends is what the lead reads, invalid and lost ones too."""
    for sent in [*answers("perfect")[:3], *answers("malformed")[:30], lost(SUITE.scenarios[0])]:
        text = json.dumps(ITEM_RESULT.dump_python(item_result(sent), mode="json"))

        assert item_of(ITEM_RESULT.validate_python(json.loads(text)), SUITE.by_id) == sent
        assert item_from_json(json.loads(json.dumps(item_to_json(sent))), SUITE.by_id) == sent
