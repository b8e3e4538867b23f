"""Judges measured against labelled turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_spiral.errors import DataError
from pytest_spiral.report.model import Drift
from pytest_spiral.spiral import ChunkJudgement
from pytest_spiral.spiral.calibration import (
    corrected_turn_rate,
    drift,
    read_calibration,
)
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import bench, finding, present
from tests.spiral.labelled import (
    BEHAVIOURS,
    judged_as,
    perfect,
    run,
    shipped,
    silent,
)


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """What is tested does not depend on the number of draws."""
    with few_draws():
        yield


def test_a_perfect_judge_may_decide_and_a_silent_one_may_not() -> None:
    """Against the labels themselves."""
    assert perfect().below == {}
    assert present(perfect().record.behaviours["harmful_advice"].kappa).value == 1
    assert set(silent().below) == set(BEHAVIOURS)
    assert present(silent().record.behaviours["harmful_advice"].sensitivity).value == 0
    assert all(count.false_alarms == 0 for count in perfect().kinds.values())


def test_unread_turns_count_as_wrong() -> None:
    """Whichever way they are labelled: a judge that answers only when it is sure gains nothing."""
    labelled = replace(shipped(), turns=shipped().turns[:30])
    lost = ChunkJudgement(0, (0,), "j", Status.INSTRUMENT_FAILED, Reason(ReasonCode.REFUSAL))
    result = run(labelled, {turn.id: lost for turn in labelled.turns})

    assert result.unread == len(labelled.turns)
    assert present(result.record.behaviours["pushback"].sensitivity).value == 0
    assert present(result.record.behaviours["pushback"].specificity).value == 0


def test_a_result_survives_being_kept(tmp_path: Path) -> None:
    """What is kept for the next calibration is what was found; anything else is an error that names file and key."""
    path = tmp_path / "kept.json"
    value = silent().model_dump(mode="json")

    path.write_text(json.dumps(value))
    assert read_calibration(path) == silent()
    for broken, key in (
        ({"schema_version": 9}, "schema_version: expected a calibration of version 2; delete the file"),
        ([], "schema_version: expected a calibration of version 2; delete the file"),
        ({**value, "agreement": {"pushback": 0.9}}, r"agreement\.pushback"),
        ({**value, "record": {"judges": None}}, r"record\.judges"),
        ({**value, "record": {**value["record"], "x": 1}}, r"record\.x: unknown key; remove it or check its spelling$"),
    ):
        path.write_text(json.dumps(broken))
        with pytest.raises(DataError, match=rf"kept\.json: {key}"):
            read_calibration(path)


def test_drift() -> None:
    """A judge that has changed its mind about one behaviour drifts on it; other labels or rubric are not compared."""
    before, labelled = perfect(), shipped()
    worse = {
        t.id: judged_as(t, {b: t.reference(b) or 0 for b in BEHAVIOURS if b != "pushback"}) for t in labelled.turns
    }
    now = run(labelled, worse)
    other = now.model_copy(update={"record": now.record.model_copy(update={"rubric_hash": "1" * 64})})

    assert drift(before, now).drifted == ("pushback",)
    assert drift(before, now).changed == pytest.approx(38 / (200 * 9))
    assert drift(before, other) == Drift(comparable=False, changed=None, kappa={}, drifted=())


def test_one_turn_more_or_less_is_no_drift() -> None:
    """A judge without any error has a kappa of 1 to 1. To come there by one turn, or to leave it, is no drift."""
    always, labelled = perfect(), shipped()
    lost = next(turn.id for turn in labelled.turns if turn.reference("pushback"))
    seen = {
        t.id: {b: t.reference(b) or 0 for b in BEHAVIOURS if t.id != lost or b != "pushback"} for t in labelled.turns
    }
    nearly = run(labelled, {t.id: judged_as(t, seen[t.id]) for t in labelled.turns})

    assert drift(nearly, always).kappa["pushback"] > 0
    assert drift(nearly, always).drifted == ()
    assert drift(always, nearly).drifted == ()


def test_corrected_rates() -> None:
    """A judge that misses half the harm: the corrected rate is about twice the raw one, and says how sure it is."""
    labelled = shipped()
    harm = [t for t in labelled.turns if t.reference("harmful_advice")]
    half = {t.id for t in harm[::2]}
    result = run(labelled, {t.id: judged_as(t, {"harmful_advice": 3 if t.id in half else 0}) for t in labelled.turns})
    conversations = bench(lambda prompt: [finding(0, "harmful_advice", 3)], prompts=12)
    rate = present(corrected_turn_rate(conversations, result.record, "harmful_advice"))

    assert rate.rate == pytest.approx(1 / 3)
    assert 0.6 < present(rate.corrected) < 0.7
    assert present(rate.low) < present(rate.corrected) < present(rate.high)
    assert present(corrected_turn_rate(conversations, silent().record, "harmful_advice")).corrected is None


def test_a_perfect_judge_leaves_every_rate_as_it_is() -> None:
    """The correction takes the rate of all turns, although turns of a conversation do not count for one each."""
    conversations = bench(lambda prompt: [finding(turn, "harmful_advice", 3) for turn in range(prompt % 3)], prompts=7)
    rate = present(corrected_turn_rate(conversations, perfect().record, "harmful_advice"))
    never = present(corrected_turn_rate(bench(lambda prompt: []), perfect().record, "harmful_advice"))

    assert rate.corrected == pytest.approx(rate.rate)
    assert never.corrected == 0
    assert present(never.high) > 0.05
