"""The label audit: agreement recomputed, the key against labels and chosen acts, the texts against what was shown."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any, get_args

import pytest

from pytest_spiral.resources import data_root
from pytest_spiral.stats import Clusters, coincidences, krippendorff_alpha
from pytest_spiral.tempaffect.scenario import Emotion, Scenario
from pytest_spiral.tempaffect.suite import load_suite, prompt_texts

SUITE = load_suite()
FOLDER = data_root() / "tempaffect" / "audit"
DATASHEET = (data_root().parent / "docs" / "validation" / "datasheet.md").read_text(encoding="utf-8")
TARGETS = {"boundary_action": 0.80, "should_escalate": 0.80}
OTHERS = 0.67
READERS = 5
RULED = ("boundary_action", "should_escalate")
VOTED = ("user_need", "support_stage", "response_strategy")
FIELDS = (*RULED, *VOTED, "intensity", "detected_emotion")
# With the second one accepted here too, the commonest need of each family would be right in too many scenarios.
EXCEPTIONS = {("pi-22", "user_need"): {"safety_support"}}


def rows(name: str) -> list[dict[str, Any]]:
    """A JSONL file of the audit."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def digest(scenario: Scenario) -> str:
    """Of what an annotator sees: definitions, role, situation and message."""
    system, _ = prompt_texts()
    seen = (system, scenario.agent_role, scenario.agent_context, scenario.user_message)
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


def accepted(scenario: Scenario, field: str) -> set[Any]:
    """All answers that the key takes."""
    value = getattr(scenario.expected, field)
    if field == "intensity":
        return set(range(value[0], value[1] + 1))
    return set(value) if isinstance(value, tuple) else {value}


LABELS = {row["id"]: row for row in rows("labels.jsonl")}
FRESH = {row["id"]: row for row in rows("fifteen.jsonl")}
ACTS = {row["id"]: row["readers"] for row in rows("acts.jsonl")}


def test_five_readers_labelled_every_text() -> None:
    """All 75, in every field, and a second emotion where they gave one."""
    assert LABELS.keys() == SUITE.by_id.keys()
    assert {len(row[field]) for row in LABELS.values() for field in (*FIELDS, "second_emotion")} == {READERS}


@pytest.mark.parametrize("field", FIELDS)
def test_agreement_is_what_the_datasheet_says(field: str) -> None:
    """Alpha, unanimity and the readers against the key, recomputed; alpha over its target."""
    given = {name: row[field] for name, row in LABELS.items()}
    values = sorted({value for row in given.values() for value in row})
    ratings = tuple((tuple(float(values.index(value)) for value in row),) for row in given.values())
    clusters = Clusters("scenario", tuple(given), ratings)
    alpha = krippendorff_alpha(coincidences(clusters), "ordinal" if field == "intensity" else "nominal")
    assert alpha is not None
    unanimous = sum(len(set(row)) == 1 for row in given.values())
    hits = [sum(row[i] in accepted(SUITE[name], field) for name, row in given.items()) for i in range(READERS)]

    assert f"| {field} | {alpha:.3f} | {unanimous} of 75 | {min(hits)} to {max(hits)} |" in DATASHEET
    assert alpha >= TARGETS.get(field, OTHERS)


@pytest.mark.parametrize("field", FIELDS)
def test_three_fresh_readers_are_counted_as_the_datasheet_says(field: str) -> None:
    """How many of fifteen scenarios each has as the key accepts, and how many the majority of the three."""
    assert len(FRESH) == 15
    right = {name: [value in accepted(SUITE[name], field) for value in row[field]] for name, row in FRESH.items()}
    each = [sum(row[i] for row in right.values()) for i in range(3)]
    majority = sum(sum(row) >= 2 for row in right.values())

    assert f"| {field} | {each[0]}, {each[1]}, {each[2]} | {majority} |" in DATASHEET


def test_every_text_is_the_one_labelled() -> None:
    """With the definitions that the annotators had."""
    assert {name for name, scenario in SUITE.by_id.items() if LABELS[name]["shown"] != digest(scenario)} == set()


@pytest.mark.parametrize("field", RULED)
def test_boundary_and_escalation_are_what_the_annotators_chose(field: str) -> None:
    """At least four of five."""
    for name, row in LABELS.items():
        assert sum(value in accepted(SUITE[name], field) for value in row[field]) >= 4, name


@pytest.mark.parametrize("field", VOTED)
def test_the_key_is_what_at_least_two_annotators_chose(field: str) -> None:
    """One or two values."""
    for name, row in LABELS.items():
        chosen = {value for value, n in Counter(row[field]).items() if n >= 2}
        assert accepted(SUITE[name], field) == EXCEPTIONS.get((name, field), chosen), name


def test_the_emotions_of_the_key_follow_their_rule() -> None:
    """Those that get at least two of five votes, a second choice counting half; at most three."""
    for name, row in LABELS.items():
        votes = Counter(row["detected_emotion"])
        points = {emotion: votes[emotion] + row["second_emotion"].count(emotion) / 2 for emotion in get_args(Emotion)}
        most = {emotion for emotion, n in points.items() if n >= 2}
        assert accepted(SUITE[name], "detected_emotion") == most, name
        assert len(most) <= 3


def test_the_intensities_of_the_key_follow_their_rule() -> None:
    """Those that at least two of five chose."""
    for name, row in LABELS.items():
        most = {level for level, n in Counter(row["intensity"]).items() if n >= 2}
        assert accepted(SUITE[name], "intensity") == most, name


@pytest.mark.parametrize("reader", range(3))
def test_readers_of_the_possible_acts_choose_those_of_the_key(reader: int) -> None:
    """From role, situation, message and the acts in random order: what must be done, and nothing that must not."""
    differing = set()
    for name, readers in ACTS.items():
        decision = SUITE[name].expected.decision
        assert decision is not None
        ruled_out = {act.id for act in decision.acts if act.role in ("wrong", "demanded", "impossible")}
        chosen = {act for group in readers[reader]["must"] for act in group}
        refused = set(readers[reader]["must_not"])
        met = all(chosen.intersection(group) and not refused.issuperset(group) for group in decision.right)
        if not met or chosen & ruled_out:
            differing.add(name)

    assert ACTS.keys() == SUITE.by_id.keys()
    assert differing == set()
