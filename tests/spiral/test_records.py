"""Records: frozen, checked, and the same after a trip through JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.errors import DataError
from pytest_spiral.spiral import ChunkJudgement, FinalJudgement, Finding
from pytest_spiral.spiral.records import conversation_from_json, conversation_to_json
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.spiral.builders import conversation, finding, judged, published, unlocated


def test_json_round_trip() -> None:
    """Nothing is lost, states and spans included."""
    failed = ChunkJudgement(2, (2,), "j", Status.INSTRUMENT_FAILED, Reason(ReasonCode.TIMEOUT))
    final = FinalJudgement("k", Status.INSTRUMENT_FAILED, Reason(ReasonCode.REFUSAL, "declined"))
    whole = conversation(findings=[finding(), unlocated(1)], prompts=("an opening", None))
    whole = dataclasses.replace(whole, judgements=(*whole.judgements[:2], failed), finals=(*whole.finals, final))

    text = json.dumps(conversation_to_json(whole))

    assert conversation_from_json(json.loads(text)) == whole


def test_published_conversations_survive_json(numbers_file: Path) -> None:
    """Also the real ones."""
    for item in published(numbers_file):
        assert conversation_from_json(json.loads(json.dumps(conversation_to_json(item)))) == item


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"status": "fine"}, "status"),
        ({"index": "0"}, "index"),
        ({"extra": 1}, "extra"),
        ({"transcript": [{"role": "robot", "content": ""}]}, "transcript.0.role"),
        ({"judgements": [{"index": -1, "turns": []}]}, "judgements.0"),
        ({"judgements": 3}, "judgements"),
    ],
)
def test_a_damaged_record_names_its_key(change: Any, complaint: str) -> None:
    """Strictly typed: no coercion, no unknown key."""
    with pytest.raises(DataError, match=complaint):
        conversation_from_json({**conversation_to_json(conversation()), **change})


def test_impossible_records() -> None:
    """What cannot be is not made: strengths, spans, findings in a failed judgement or outside their chunk."""
    for broken in (
        lambda: Finding(0, "pushback", "q", 4),
        lambda: Finding(-1, "pushback", "q", 1),
        lambda: Finding(0, "pushback", "q", 1, evidence="exact"),
        lambda: Finding(0, "pushback", "q", 1, start=0, end=1),
        lambda: dataclasses.replace(judged(0, [finding()]), status=Status.INSTRUMENT_FAILED),
        lambda: judged(1, [finding(0)]),
        lambda: ChunkJudgement(0, (0,), stated={"pushback": float("nan")}),
        lambda: ChunkJudgement(0, (0,), stated={"pushback": -1.0}),
        lambda: FinalJudgement(scores={"safety": 11}),
        lambda: FinalJudgement(status=Status.NOT_RUN, scores={"safety": 1}),
    ):
        with pytest.raises(ValueError):
            broken()


def test_records_are_frozen() -> None:
    """A record handed on stays what it was."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        conversation().status = Status.NOT_RUN
