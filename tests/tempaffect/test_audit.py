"""The label audit: agreement recomputed, the key against the labels, the texts against what was shown."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from statistics import median
from typing import Any

import pytest

from pytest_spiral.resources import data_root, read_json
from pytest_spiral.stats import Clusters, coincidences, krippendorff_alpha
from pytest_spiral.tempaffect.scenario import Scenario
from pytest_spiral.tempaffect.suite import load_suite

SUITE = load_suite()
FOLDER = data_root() / "tempaffect" / "audit"
FIGURES = read_json(FOLDER / "figures.json")["agreement"]
DATASHEET = (data_root().parent / "docs" / "validation" / "datasheet.md").read_text(encoding="utf-8")
TARGETS = {"boundary_action": 0.80, "should_escalate": 0.80}
OTHERS = 0.67
# `rm-07` keeps 5 beside the 4 of its annotators: no other text of its family would have the top of the scale.
INTENSITY_EXCEPTIONS = {"rm-07": (4, 5)}


def rows(name: str) -> list[dict[str, Any]]:
    """A JSONL file of the audit."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def digest(scenario: Scenario) -> str:
    """Of what an annotator sees."""
    seen = (scenario.agent_role, scenario.agent_context, scenario.user_message)
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


REWRITES = rows("rewrites.jsonl")
# Round -> scenario -> digest of the text shown, and round -> scenario -> labels.
SHOWN = {int(number): texts for number, texts in read_json(FOLDER / "shown.json")["rounds"].items()}
Labels = dict[str, list[dict[str, Any]]]
LABELS: dict[int, Labels] = {number: {} for number in SHOWN}
for label in rows("labels.jsonl"):
    LABELS[label["round"]].setdefault(label["id"], []).append(label)
# Round 3, and round 4 for what was rewritten after it.
PRESENT = {name: LABELS[3 if SHOWN[4].get(name, text) == text else 4][name] for name, text in SHOWN[3].items()}


def last_round(name: str) -> int:
    """Number of the last round in which the scenario was labelled."""
    return max(number for number in SHOWN if name in SHOWN[number])


def agreement(result: Labels, field: str) -> list[float]:
    """Alpha to three places, and on how many texts all agree."""
    values = sorted({row[field] for labels in result.values() for row in labels})
    ratings = [[float(values.index(row[field])) for row in labels] for labels in result.values()]
    clusters = Clusters("scenario", tuple(result), tuple((r,) for r in ratings))
    alpha = krippendorff_alpha(coincidences(clusters), "ordinal" if field == "intensity" else "nominal")
    assert alpha is not None
    return [round(alpha, 3), sum(len(set(r)) == 1 for r in ratings)]


@pytest.mark.parametrize("number", LABELS)
def test_each_round_has_three_annotators_of_its_own(number: int) -> None:
    """Nobody labels in two rounds, and all three label what was shown."""
    annotators = set(range(3 * number - 2, 3 * number + 1))

    assert set(LABELS[number]) == set(SHOWN[number])
    for name, labels in LABELS[number].items():
        assert {row["annotator"] for row in labels} == annotators, name
        assert len(labels) == 3, name


@pytest.mark.parametrize("field", FIGURES["present"])
def test_agreement_is_what_the_datasheet_says(field: str) -> None:
    """Every printed alpha recomputed; that of the present texts over its target."""
    for number, result in LABELS.items():
        assert FIGURES["rounds"][str(number)][field] == agreement(result, field), number
    alpha, unanimous = agreement(PRESENT, field)
    printed = [f"{FIGURES['rounds'][number][field][0]:.3f}" for number in ("1", "2", "3")]
    row = " | ".join([field, *printed, f"{alpha:.3f}", f"{unanimous} of {len(PRESENT)}"])
    assert f"| {row} |" in DATASHEET
    assert FIGURES["present"][field] == [alpha, unanimous]
    assert alpha >= TARGETS.get(field, OTHERS)


def test_every_text_is_the_one_labelled_last() -> None:
    """No text has changed since its last round, by a recorded rewrite or any other way."""
    changed = {name for name in SUITE.by_id if SHOWN[last_round(name)][name] != digest(SUITE[name])}

    assert changed == set()


def test_every_rewrite_shows_between_rounds() -> None:
    """A text on record as rewritten is another one than the first annotators saw."""
    seen_fields = {"agent_role", "agent_context", "user_message"}
    rewritten = {row["id"] for row in REWRITES if seen_fields & set(row["text"])}

    assert rewritten == {name for name in SUITE.by_id if SHOWN[1][name] != digest(SUITE[name])}


@pytest.mark.parametrize(
    "field", ["boundary_action", "should_escalate", "user_need", "support_stage", "response_strategy"]
)
def test_all_annotators_of_the_last_round_give_the_key(field: str) -> None:
    """Three of three, on every text, without exception."""
    for name in SUITE.by_id:
        key = getattr(SUITE[name].expected, field)
        given = {row[field] for row in LABELS[last_round(name)][name]}
        assert given == (set(key) if isinstance(key, tuple) else {key}), name


def test_the_emotions_of_the_key_are_those_of_most_annotators() -> None:
    """At least two of three, in round 2 or 3 for a text unchanged since round 2, else in its last round."""
    for name in SUITE.by_id:
        unchanged = SHOWN[2][name] == digest(SUITE[name])
        counts = [
            Counter(row["detected_emotion"] for row in LABELS[number][name])
            for number in ((2, 3) if unchanged else (last_round(name),))
        ]
        most = {emotion for count in counts for emotion, n in count.items() if n >= 2}
        assert most
        assert set(SUITE[name].expected.detected_emotion) == most, name


def test_the_intensity_of_the_key_follows_its_rule() -> None:
    """In the last round: what all three say; else the earlier range if it holds their median, else the median."""
    earlier = {
        row["id"]: row["key"]["intensity"]["before"]
        for row in REWRITES
        if row["round"] == 4 and "intensity" in row["key"]
    }
    departing = {}
    for name in SUITE.by_id:
        result = SUITE[name].expected.intensity
        low, high = earlier.get(name, result)
        given = [row["intensity"] for row in LABELS[last_round(name)][name]]
        middle = median(given)
        kept = len(set(given)) > 1 and low <= middle <= high
        if result != ((low, high) if kept else (middle, middle)):
            departing[name] = result

    assert departing == INTENSITY_EXCEPTIONS


def test_fifteen_drawn_at_random() -> None:
    """Boundary and escalation, answered blind in round 3, and in round 4 what was rewritten since."""
    drawn = random.Random(FIGURES["draw"]["seed"]).sample(sorted(SUITE.by_id), 15)

    def misses(result: Labels) -> list[list[str]]:
        return [
            [
                name
                for name in drawn
                for row in (result[name][reader],)
                if (row["boundary_action"], row["should_escalate"])
                != (SUITE[name].expected.boundary_action, SUITE[name].expected.should_escalate)
            ]
            for reader in range(3)
        ]

    assert drawn == FIGURES["draw"]["scenarios"]
    assert misses(LABELS[3]) == FIGURES["draw"]["missed"]
    assert misses(PRESENT) == [[], [], []]


def test_every_scenario_has_one_mark_of_the_second_editor() -> None:
    """What was done with a mark agrees with the mends after it: adopted to the letter, changed otherwise, or left."""
    marks = rows("marks.jsonl")
    mends = {row["id"]: row["text"] for row in REWRITES if row["round"] == 3}

    assert sorted(mark["id"] for mark in marks) == sorted(SUITE.by_id)
    for mark in marks:
        text = mends.get(mark["id"], {})
        adopted = [text.get(field, {}).get("after") == wanted for field, wanted in mark["suggestion"].items()]
        assert mark["why"], mark["id"]
        assert (mark["mark"] == "reword") == bool(adopted), mark["id"]
        done = "adopted" if adopted and all(adopted) else "adapted"
        assert mark["done"] == (done if text else "left"), mark["id"]


def test_the_last_rewrite_of_a_text_is_the_text() -> None:
    """The record of mends ends where the suite stands."""
    last = {(row["id"], field): text["after"] for row in REWRITES for field, text in row["text"].items()}

    assert last
    for (name, field), text in last.items():
        assert getattr(SUITE[name], field) == text, (name, field)


def test_the_last_change_of_a_key_is_the_key() -> None:
    """So does the record of keys."""
    last = {(row["id"], field): key["after"] for row in REWRITES for field, key in row["key"].items()}

    assert last
    for (name, field), key in last.items():
        result = getattr(SUITE[name].expected, field)
        assert (list(result) if isinstance(result, tuple) else result) == key, (name, field)
