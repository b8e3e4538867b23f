"""The label audit: agreement recomputed, the key against labels and chosen acts, the texts against what was shown."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import Any

import pytest

from pytest_spiral.resources import data_root
from pytest_spiral.stats import Clusters, coincidences, krippendorff_alpha
from pytest_spiral.tempaffect.scenario import EMOTIONS, Scenario
from pytest_spiral.tempaffect.suite import load_suite

SUITE = load_suite()
FOLDER = data_root() / "tempaffect" / "audit"
DATASHEET = (data_root().parent / "docs" / "validation" / "datasheet.md").read_text(encoding="utf-8")
TARGETS = {"boundary_action": 0.80, "should_escalate": 0.80}
OTHERS = 0.67
READERS = 5
RULED = ("boundary_action", "should_escalate", "user_need", "support_stage", "response_strategy")
FIELDS = (*RULED, "intensity", "detected_emotion")
# Texts written anew because of their labels, and texts in which a name was changed afterwards.
REWRITTEN = {"pi-16", "pi-19", "pi-20"}
RENAMED = {"pi-12", "ps-24", "rm-13", "rm-20", "rm-25"}
# Two readers chose 3 and two 4; with 3 accepted here too, a constant 3 would be right in more than 45 % of scenarios.
INTENSITY_EXCEPTIONS = {"ps-07": ({3, 4}, {4})}


def rows(name: str) -> list[dict[str, Any]]:
    """A JSONL file of the audit."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def digest(scenario: Scenario) -> str:
    """Of what an annotator sees."""
    seen = (scenario.agent_role, scenario.agent_context, scenario.user_message)
    return hashlib.sha256("\n".join(seen).encode()).hexdigest()[:16]


def accepted(scenario: Scenario, field: str) -> set[Any]:
    """All answers that the key takes."""
    value = getattr(scenario.expected, field)
    if field == "intensity":
        return set(range(value[0], value[1] + 1))
    return set(value) if isinstance(value, tuple) else {value}


LABELS = {row["id"]: row for row in rows("labels.jsonl")}
AGAIN = {row["id"]: row for row in rows("again.jsonl")}
LATER = {row["id"]: row for row in rows("later.jsonl")}
# Drawn by `random.Random("fifteen, 23 November 2026")` before these readers answered.
FIFTEEN = [
    "pi-01",
    "pi-03",
    "pi-09",
    "pi-12",
    "pi-16",
    "pi-22",
    "ps-11",
    "ps-12",
    "ps-22",
    "ps-23",
    "rm-05",
    "rm-07",
    "rm-09",
    "rm-21",
    "rm-23",
]
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
def test_later_readers_are_counted_as_the_datasheet_says(field: str) -> None:
    """How often the key accepts each of five further readers, of all and of fifteen, and where they split."""
    assert LATER.keys() == SUITE.by_id.keys()
    right = {name: [value in accepted(SUITE[name], field) for value in row[field]] for name, row in LATER.items()}
    counts = [[sum(right[name][i] for name in names) for i in range(READERS)] for names in (right, FIFTEEN)]
    contested = ", ".join(f"`{name}`" for name in sorted(right) if sum(right[name]) <= 3)
    ranges = " | ".join(f"{min(each)} to {max(each)}" for each in counts)

    assert f"| {field} | {ranges} | {contested} |".replace("|  |", "| |") in DATASHEET


def test_every_text_is_the_one_labelled_except_those_named() -> None:
    """What has changed since is in the datasheet by its id."""
    changed = {name for name, scenario in SUITE.by_id.items() if LABELS[name]["shown"] != digest(scenario)}

    assert changed == REWRITTEN | RENAMED
    assert all(f"`{name}`" in DATASHEET for name in changed)


@pytest.mark.parametrize("field", RULED)
def test_the_key_is_what_most_readers_chose(field: str) -> None:
    """At least three of five, and every value that the key takes was chosen; except in texts written anew since."""
    for name in SUITE.by_id.keys() - REWRITTEN:
        votes = Counter(LABELS[name][field])
        key = accepted(SUITE[name], field)
        assert sum(votes[value] for value in key) >= 3, name
        assert key <= votes.keys(), name


@pytest.mark.parametrize("name", AGAIN)
def test_the_key_accepts_what_two_readers_of_changed_texts_and_keys_gave(name: str) -> None:
    """In every field. One word of `pi-20` and a greeting in `pi-16` were left out afterwards."""
    assert AGAIN.keys() >= REWRITTEN
    assert AGAIN[name]["shown"] == digest(SUITE[name]) or name in ("pi-16", "pi-20")
    for field in FIELDS:
        assert set(AGAIN[name][field]) <= accepted(SUITE[name], field), field


def test_the_emotions_of_the_key_follow_their_rule() -> None:
    """Those that get at least two of five votes, a second choice counting half; at most three."""
    for name, row in LABELS.items():
        votes = Counter(row["detected_emotion"])
        points = {emotion: votes[emotion] + row["second_emotion"].count(emotion) / 2 for emotion in EMOTIONS}
        most = {emotion for emotion, n in points.items() if n >= 2}
        assert accepted(SUITE[name], "detected_emotion") == most, name
        assert len(most) <= 3


def test_the_intensities_of_the_key_follow_their_rule() -> None:
    """Those that at least two of five chose, with the exception named."""
    departing = {}
    for name, row in LABELS.items():
        most = {level for level, n in Counter(row["intensity"]).items() if n >= 2}
        if (key := accepted(SUITE[name], "intensity")) != most:
            departing[name] = (most, key)

    assert departing == INTENSITY_EXCEPTIONS


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
