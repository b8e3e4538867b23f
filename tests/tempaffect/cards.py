"""Items and cards of the built-in models, for tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from pytest_spiral.status import Reason, ReasonCode, Status
from pytest_spiral.tempaffect.records import CARD_MODES, CardContext, Item, Mode
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import load_suite
from pytest_spiral.tempaffect.unit import ScenarioUnit, make_item, scored_item

SUITE = load_suite()
HASH = "a" * 64
OTHER_HASH = "b" * 64


def context(**changes: Any) -> CardContext:
    """A run in which nothing is wrong."""
    result = CardContext(
        suite_hash=HASH,
        pinned_suite_hash=HASH,
        scorer_fingerprint=HASH,
        pinned_scorer_fingerprint=HASH,
        preflight_faults=(),
        baselines={"majority_constant": {"score": 0.5, "useful_bounded_response_rate": 0.0}},
        scenarios=SUITE.by_id,
        seed=1,
        served_models=("model-2026-01-01",),
        enforcement_verified=True,
    )
    return replace(result, **changes)


def item(scenario: Scenario, output: str) -> Item:
    """A scored item."""
    return scored_item(ScenarioUnit("m", "schema", scenario.id), scenario, output)


def lost(scenario: Scenario) -> Item:
    """An item whose call failed."""
    reason = Reason(ReasonCode.TIMEOUT, "too slow")
    return make_item(ScenarioUnit("m", "schema", scenario.id), scenario, Status.INSTRUMENT_FAILED, reason)


@cache
def _answers(name: str) -> tuple[Item, ...]:
    return tuple(item(scenario, dry_output(name, SUITE, scenario)) for scenario in SUITE.scenarios)


def answers(name: str, mode: Mode = "schema", epoch: int = 0) -> list[Item]:
    """What a built-in model answers to the whole suite."""
    return [replace(result, prompting_mode=CARD_MODES[mode], epoch=epoch) for result in _answers(name)]
