"""The stand-ins: each known way to fail is seen through, the good one passes, and every card is kept as it is."""

from __future__ import annotations

from collections import Counter

import pytest
from syrupy.extensions.json import JSONSnapshotExtension

from pytest_spiral.status import Status
from pytest_spiral.tempaffect.card import CardContext, build_card
from pytest_spiral.tempaffect.records import Item
from pytest_spiral.tempaffect.scorer import score_output
from pytest_spiral.tempaffect.self_check import baselines, fixture_faults, fixture_measures, preflight
from pytest_spiral.tempaffect.stand_ins import DRY_MODELS, MALFORMATIONS, PAGE_FIXTURES, dry_output
from pytest_spiral.tempaffect.suite import CANARY, load_suite, lock

SUITE = load_suite()


@pytest.mark.parametrize("name", DRY_MODELS)
def test_stand_ins_meet_their_limits(name):
    """Every expectation of `limits.toml` holds for all 13."""
    assert fixture_faults(name, fixture_measures(name, SUITE)) == []


@pytest.mark.parametrize("name", DRY_MODELS)
def test_stand_ins_have_limits(name):
    """A stand-in without an expectation would prove nothing: broken measures must show."""
    impossible = dict.fromkeys(fixture_measures(name, SUITE), 0.5)

    assert fixture_faults(name, impossible) != []


def test_malformations_earn_their_own_codes():
    """Each of the 25 kinds appears, each under its own reason."""
    reasons = Counter(score_output(s, dry_output("malformed", SUITE, s)).reason.code for s in SUITE.scenarios)

    assert set(reasons) == set(MALFORMATIONS)
    assert len(MALFORMATIONS) >= 12


def test_perfect_is_within_every_band():
    """All six detectors are ok for authored replies, and the score is one."""
    measures = fixture_measures("perfect", SUITE)

    assert measures["score"] >= 0.99
    assert measures["useful"] == 1.0


def test_the_preflight_is_clean_and_pinned():
    """This build's scorer behaves as the pinned one."""
    found = preflight(SUITE)

    assert found.faults == ()
    assert found.fingerprint == lock()["scorer_fingerprint"]
    assert SUITE.suite_hash == lock()["suite_hash"]


def test_the_fingerprint_is_stable():
    """Running the scorer twice gives the same fingerprint."""
    again = preflight.__wrapped__(SUITE)

    assert again is not preflight(SUITE)
    assert again == preflight(SUITE)


def card_of(name, mode):
    items = []
    for scenario in SUITE.scenarios:
        output = dry_output(name, SUITE, scenario)
        score = score_output(scenario, output)
        status = Status.MEASURED if score.valid else Status.MODEL_FAILED
        items.append(
            Item(
                scenario.id,
                scenario.family.value,
                f"dry/{name}",
                mode,
                0,
                status,
                score.reason,
                output,
                score,
            )
        )
    context = CardContext(
        suite_hash=SUITE.suite_hash,
        pinned_suite_hash=SUITE.suite_hash,
        scorer_fingerprint="",
        pinned_scorer_fingerprint="",
        preflight_faults=(),
        baselines=baselines(SUITE),
        expected={s.id: s.family.value for s in SUITE.scenarios},
        canary=CANARY,
        seed=1,
        stand_in=True,
        enforcement_verified=True,
    )
    return build_card(f"dry/{name}", mode, items, context)


def rounded(value):
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", DRY_MODELS)
def test_cards(name, snapshot):
    """The whole card of every stand-in, so that no change of the scorer goes unseen."""
    card = card_of(name, "schema")
    del card["integrity"]["suite_hash"]

    assert rounded(card) == snapshot(extension_class=JSONSnapshotExtension)


def test_page_fixtures_are_the_five():
    """The preflight runs those that the benchmark's page names."""
    assert PAGE_FIXTURES == ("perfect", "defensive", "malformed", "keyword_gamer", "overempathic")
