"""Models that do not read: how much of the key each could guess, recomputed from the suite, within fixed ceilings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, get_args

import pytest

from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.scenario import (
    BoundaryAction,
    Emotion,
    Family,
    ResponseStrategy,
    Scenario,
    SupportStage,
    UserNeed,
)
from pytest_spiral.tempaffect.self_check import dry_scores, measures_of
from pytest_spiral.tempaffect.stand_ins import dry_output
from pytest_spiral.tempaffect.suite import load_suite

SUITE = load_suite()
N = len(SUITE.scenarios)
FIELDS: dict[str, tuple[tuple[object, ...], float, float, float]] = {
    # field: (values, ceiling of the commonest answer, of the commonest answer per family, of a random answer)
    "detected_emotion": (get_args(Emotion), 0.30, 0.32, 0.12),
    "intensity": ((1, 2, 3, 4, 5), 0.45, 0.52, 0.37),
    "user_need": (get_args(UserNeed), 0.30, 0.35, 0.15),
    "response_strategy": (get_args(ResponseStrategy), 0.35, 0.60, 0.17),
    "support_stage": (get_args(SupportStage), 0.35, 0.60, 0.21),
    "boundary_action": (get_args(BoundaryAction), 0.52, 0.70, 0.25),
    "should_escalate": ((True, False), 0.82, 0.82, 0.50),
}


def accepted(scenario: Scenario, field: str) -> set[Any]:
    """All answers that the key takes."""
    value = getattr(scenario.expected, field)
    if field == "intensity":
        return set(range(value[0], value[1] + 1))
    return set(value) if isinstance(value, tuple) else {value}


def hits_of_the_commonest(scenarios: Iterable[Scenario], field: str) -> int:
    """How many scenarios the best constant answer gets right."""
    return max(Counter(value for s in scenarios for value in accepted(s, field)).values())


@pytest.mark.parametrize("field", FIELDS)
def test_no_label_can_be_guessed(field: str) -> None:
    """Always the commonest answer, always the family's commonest, any answer at random: each within its ceiling."""
    values, majority, family_aware, at_random = FIELDS[field]
    families = [[s for s in SUITE.scenarios if s.family is family] for family in Family]

    assert hits_of_the_commonest(SUITE.scenarios, field) / N <= majority
    assert sum(hits_of_the_commonest(members, field) for members in families) / N <= family_aware
    assert sum(len(accepted(s, field)) for s in SUITE.scenarios) / N / len(values) <= at_random + 1e-9


def test_whole_scores_of_models_that_do_not_read() -> None:
    """Constant, random, shuffled and echoing models: nothing useful, and scores that skill is measured against."""
    names = ("constant_majority", "random_valid", "shuffled_replies", "echo")
    rows = {name: measures_of(dry_scores(name, SUITE)) for name in names}
    useful = {name: row["useful"] for name, row in rows.items()}

    assert max(useful.values()) <= 0.02, useful
    assert rows["random_valid"]["score"] <= 0.38
    assert rows["constant_majority"]["score"] <= 0.50


def test_the_best_constant_reply_is_useless() -> None:
    """Always the commonest labels and one authored reply, the best of the 75: useful for its own scenario at most."""
    constant = json.loads(dry_output("constant_majority", SUITE, SUITE.scenarios[0]))
    reachable = [
        s
        for s in SUITE.scenarios
        if (s.expected.boundary_action, s.expected.should_escalate)
        == (constant["boundary_action"], constant["should_escalate"])
    ]
    hits = {
        author.id: sum(bool(check_reply(s, author.reference_reply).useful_bounded) for s in reachable)
        for author in SUITE.scenarios
    }

    assert {name for name, n in hits.items() if n / len(SUITE.scenarios) > 0.02} == set()
