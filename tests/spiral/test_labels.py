"""Labelled turns, and judges measured against them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.errors import DataError
from pytest_spiral.records import Status
from pytest_spiral.session.calibrate import label
from pytest_spiral.session.chats import LexicalJudge
from pytest_spiral.spiral import ChunkJudgement, Finding, load_protocol
from pytest_spiral.spiral.calibrating import calibrated, calibration_run_from_json, corrected, drift
from pytest_spiral.spiral.labels import load_labels, sheet
from tests.spiral.builders import bench, finding

PROTOCOL = load_protocol("per-10k-chars")
BEHAVIOURS = PROTOCOL.behaviours


def judged_as(turn, seen):
    """A judgement that sees these strengths, quoting the first word."""
    end = len(turn.assistant.split()[0])
    found = tuple(Finding(0, b, turn.assistant[:end], s, "j", "exact", 0, end) for b, s in seen.items() if s)
    return [ChunkJudgement(0, (0,), "j", behaviours=BEHAVIOURS, findings=found)]


def run(labelled, judgements):
    return calibrated(labelled, judgements, ["j"], "0" * 64, BEHAVIOURS)


@cache
def shipped():
    return load_labels(None, BEHAVIOURS)


@cache
def perfect():
    """A judge that sees what the labels say."""
    turns = shipped().turns
    return run(shipped(), {t.id: judged_as(t, {b: t.reference(b) for b in BEHAVIOURS}) for t in turns})


@cache
def silent():
    """A judge that sees nothing."""
    return run(shipped(), {t.id: judged_as(t, {}) for t in shipped().turns})


# The shipped set


def test_the_shipped_set_covers_what_it_should():
    """Every behaviour at every strength, things that look like one and are none, quotes, metaphors."""
    labelled = shipped()
    cells = Counter((b, s) for turn in labelled.turns for b, s in turn.labels["author"].items())
    kinds = Counter(kind for turn in labelled.turns for kind in turn.about)

    assert len(labelled.turns) >= 180
    assert len({turn.assistant for turn in labelled.turns}) == len(labelled.turns)
    assert all(cells[behaviour, strength] >= 3 for behaviour in BEHAVIOURS for strength in (1, 2, 3))
    assert min(kinds["hard_negative"], kinds["benign"]) >= 15
    assert min(kinds["quote_refuted"], kinds["metaphor"]) >= 7


def test_the_sheet_shows_nothing():
    """Another order for every rater; no label, no hint of what a turn was written for."""
    labelled = shipped()
    one, two = sheet(labelled, "ann"), sheet(labelled, "ben")

    assert [row["id"] for row in one] != [row["id"] for row in two]
    assert {frozenset(row) for row in one} == {frozenset({"id", "user", "assistant", "labels"})}
    assert not any(row["labels"] for row in one)


def test_a_perfect_judge_may_decide_and_a_silent_one_may_not():
    """Against the labels themselves."""
    assert perfect().below == {}
    assert perfect().record.behaviours["harmful_advice"].kappa.value == 1
    assert set(silent().below) == set(BEHAVIOURS)
    assert silent().record.behaviours["harmful_advice"].sensitivity.value == 0
    assert all(alarms == 0 for _, alarms in perfect().kinds.values())


def test_unread_turns_count_as_wrong():
    """Whichever way they are labelled: a judge that answers only when it is sure gains nothing."""
    labelled = replace(shipped(), turns=shipped().turns[:30])
    lost = ChunkJudgement(0, (0,), "j", Status.INSTRUMENT_FAILED, "refusal: no")
    found = run(labelled, {turn.id: [lost] for turn in labelled.turns})

    assert found.unread == len(labelled.turns)
    assert found.record.behaviours["pushback"].sensitivity.value == 0
    assert found.record.behaviours["pushback"].specificity.value == 0


def test_the_lexical_judge_falls_short_and_says_so(tmp_path, monkeypatch, capsys):
    """On the shipped set: low agreement in every line, publication blocked, exit code 1; drift the second time."""
    monkeypatch.chdir(tmp_path)

    assert main(["calibrate", "--judge-model", "dry/lexical"]) == 1
    first = capsys.readouterr().out
    assert main(["calibrate", "--judge-model", "dry/lexical", "--json"]) == 1
    second = json.loads(capsys.readouterr().out)

    assert "publication: blocked" in first
    assert first.count("below bar") == 9
    assert "no earlier calibration" in first
    assert (second["drift"]["comparable"], second["drift"]["changed"], second["drift"]["drifted"]) == (True, 0.0, [])
    assert second["record"]["behaviours"]["harmful_advice"]["sensitivity"]["value"] < 0.2


def test_the_lexical_judge_against_published_labels(upstream_file):
    """Two judges with nothing in common: agreement is poor, and no behaviour may be decided."""
    if upstream_file.stem != "kimi-k2":
        pytest.skip("one file shows it")
    labelled = load_labels(Path(upstream_file), BEHAVIOURS)
    judgements = asyncio.run(label([LexicalJudge("dry/lexical", PROTOCOL)], labelled))
    found = run(labelled, judgements)

    assert len({turn.unit for turn in labelled.turns}) == 30
    assert set(found.below) == set(BEHAVIOURS)
    assert found.record.behaviours["delusion_reinforcement"].kappa.value < 0.2


# Records


def test_several_raters(tmp_path):
    """Kept apart; presence by majority, strength by the lower median; disagreements listed, agreement reported."""
    path = tmp_path / "labels.jsonl"
    rows = [
        {"id": f"t{n}", "user": "u", "assistant": f"words {n}", "labels": {
            "ann": {"pushback": 3} if n % 2 else {},
            "ben": {"pushback": 2} if n % 2 else {"harmful_advice": 1},
            "cem": {"pushback": 1} if n % 2 else {},
        }}
        for n in range(20)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    labelled = load_labels(path, BEHAVIOURS)
    found = run(labelled, {t.id: judged_as(t, {"pushback": t.reference("pushback")}) for t in labelled.turns})

    assert [labelled.turns[n].reference("pushback") for n in (0, 1)] == [0, 2]
    assert labelled.turns[0].reference("harmful_advice") == 0
    assert len(found.disagreements) == 20
    assert found.agreement["pushback"] > 0.5
    assert found.agreement["harmful_advice"] < 0.1


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", r":1: line"),
        ('{"id": "a", "user": "u", "assistant": "", "labels": {}}', r":1: assistant"),
        ('{"id": "a", "user": "u", "assistant": "x", "labels": {"joy": 1}}', r":1: labels: 'joy' is no behaviour"),
        ('{"id": "a", "user": "u", "assistant": "x", "labels": {"pushback": 4}}', r":1: labels\.pushback"),
        ('{"id": "a", "user": "u", "assistant": "x", "labels": {"pushback": 1, "ann": {}}}', r":1: labels: either"),
        ('{"id": "a", "user": "u", "assistant": "x", "labels": {}}\n' * 2, r":2: id: 'a' is there twice"),
        ("\n", r"no labelled turn"),
    ],
)
def test_a_bad_labels_file_is_named(tmp_path, line, fault, capsys):
    """File, line, key; on the command line exit code 4 and no traceback."""
    path = tmp_path / "labels.jsonl"
    path.write_text(line)

    with pytest.raises(DataError, match=rf"labels\.jsonl.*{fault}"):
        load_labels(path, BEHAVIOURS)
    assert main(["calibrate", "--judge-model", "dry/lexical", "--labels", str(path)]) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_survives_the_trip_through_json():
    """What is kept for the next calibration is what was found; anything else is an error that names the place."""
    again = calibration_run_from_json(json.loads(json.dumps(silent().to_json())), "file")

    assert again == silent()
    with pytest.raises(DataError, match="file: schema_version"):
        calibration_run_from_json({"schema_version": 9}, "file")
    with pytest.raises(DataError, match="file: no calibration"):
        calibration_run_from_json([], "file")


def test_drift():
    """A judge that has changed its mind about one behaviour drifts on it; other labels or rubric are not compared."""
    before, labelled = perfect(), shipped()
    worse = {t.id: judged_as(t, {b: t.reference(b) for b in BEHAVIOURS if b != "pushback"}) for t in labelled.turns}
    now = run(labelled, worse)
    other = replace(now, record=replace(now.record, rubric_hash="1" * 64))

    assert drift(before, now)["drifted"] == ["pushback"]
    assert drift(before, now)["changed"] == pytest.approx(33 / (200 * 9))
    assert drift(before, other) == {"comparable": False, "changed": None, "kappa": {}, "drifted": []}


def test_corrected_rates():
    """A judge that misses half the harm: the corrected rate is about twice the raw one, and says how sure it is."""
    labelled = shipped()
    harm = [t for t in labelled.turns if t.reference("harmful_advice")]
    half = {t.id for t in harm[::2]}
    found = run(labelled, {t.id: judged_as(t, {"harmful_advice": 3 if t.id in half else 0}) for t in labelled.turns})
    talks = bench(lambda prompt: [finding(0, "harmful_advice", 3)], prompts=12)
    rate = corrected(talks, found.record, "harmful_advice")

    assert rate["rate"] == pytest.approx(1 / 3)
    assert 0.6 < rate["corrected"] < 0.7
    assert rate["low"] < rate["corrected"] < rate["high"]
    assert corrected(talks, silent().record, "harmful_advice")["corrected"] is None
