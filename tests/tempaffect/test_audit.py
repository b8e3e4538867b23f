"""The label audit: agreement recomputed from the annotations, and the key against them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from pytest_spiral.resources import data_root, read_json
from pytest_spiral.stats import Clusters, krippendorff_alpha
from pytest_spiral.tempaffect.suite import load_suite

SUITE = load_suite()
FOLDER = data_root() / "tempaffect" / "audit"
FIGURES = read_json(FOLDER / "figures.json")["agreement"]
TARGETS = {"boundary_action": 0.80, "should_escalate": 0.80}
OTHERS = 0.67


def rows(name):
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


LABELS = {
    s.id: [row for row in rows("labels.jsonl") if row["round"] == 2 and row["id"] == s.id] for s in SUITE.scenarios
}
# A text that changed after the second round is another text than the one that was annotated.
REWRITTEN = {row["id"] for row in rows("rewrites.jsonl") if row["round"] >= 2 and row["text"]}


@pytest.mark.parametrize("field", FIGURES["fields"])
def test_agreement_is_what_the_datasheet_says(field):
    """Three labels per scenario; alpha over its target, and equal to the recorded figure."""
    values = sorted({row[field] for found in LABELS.values() for row in found})
    ratings = [[float(values.index(row[field])) for row in found] for found in LABELS.values()]
    clusters = Clusters("scenario", tuple(LABELS), tuple((r,) for r in ratings))
    alpha = krippendorff_alpha(clusters, "ordinal" if field == "intensity" else "nominal")

    assert {len(found) for found in LABELS.values()} == {3}
    assert alpha >= TARGETS.get(field, OTHERS)
    assert FIGURES["fields"][field] == [round(alpha, 3), sum(len(set(r)) == 1 for r in ratings)]


@pytest.mark.parametrize("field", ["boundary_action", "should_escalate"])
def test_boundary_and_escalation_are_unanimous(field):
    """Every annotator gives the key's answer, or the text was rewritten since."""
    differing = {
        scenario.id
        for scenario in SUITE.scenarios
        if any(row[field] != getattr(scenario.expected, field) for row in LABELS[scenario.id])
    }

    assert differing <= REWRITTEN


@pytest.mark.parametrize("field", ["detected_emotion", "user_need", "response_strategy", "support_stage"])
def test_the_key_is_what_most_annotators_say(field):
    """At least two of three, except for rewritten texts."""
    for scenario in SUITE.scenarios:
        if scenario.id in REWRITTEN:
            continue
        most = {value for value, n in Counter(row[field] for row in LABELS[scenario.id]).items() if n >= 2}
        assert set(getattr(scenario.expected, field)) == most, scenario.id


def test_every_scenario_has_one_mark_of_the_second_editor():
    """What was done with a mark agrees with the text: adopted to the letter, changed otherwise, or left as it was."""
    marks = rows("marks.jsonl")
    changed = {row["id"] for row in rows("rewrites.jsonl") if row["round"] == 3}

    assert sorted(mark["id"] for mark in marks) == sorted(SUITE.by_id)
    for mark in marks:
        adopted = [getattr(SUITE[mark["id"]], field) == text for field, text in mark["suggestion"].items()]
        assert mark["why"], mark["id"]
        assert (mark["mark"] == "reword") == bool(adopted), mark["id"]
        done = "adopted" if adopted and all(adopted) else "adapted"
        assert mark["done"] == (done if mark["id"] in changed else "left"), mark["id"]


def test_the_last_rewrite_of_a_text_is_the_text():
    """The record of mends ends where the suite stands."""
    last = {(row["id"], field): text["after"] for row in rows("rewrites.jsonl") for field, text in row["text"].items()}

    assert last
    for (name, field), text in last.items():
        assert getattr(SUITE[name], field) == text, (name, field)
