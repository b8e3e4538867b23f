"""Records: frozen, checked, and the same after a trip through JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from pytest_spiral.spiral import ChunkJudgement, Conversation, FinalJudgement, Finding
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.spiral.builders import conversation, finding, judged, unlocated

RECORD = TypeAdapter(Conversation)


def test_json_round_trip() -> None:
    """Nothing is lost, states and spans included."""
    failed = ChunkJudgement(2, (2,), "j", Status.INSTRUMENT_FAILED, Reason(ReasonCode.TIMEOUT))
    final = FinalJudgement("k", Status.INSTRUMENT_FAILED, Reason(ReasonCode.REFUSAL, "declined"))
    whole = conversation(findings=[finding(), unlocated(1)], prompts=("an opening", None))
    whole = dataclasses.replace(whole, judgements=(*whole.judgements[:2], failed), finals=(*whole.finals, final))

    assert RECORD.validate_json(RECORD.dump_json(whole)) == whole


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"status": "fine"}, ("status",)),
        ({"index": "0"}, ("index",)),
        ({"extra": 1}, ("extra",)),
        ({"transcript": [{"role": "robot", "content": ""}]}, ("transcript", 0, "role")),
        ({"judgements": [{"index": -1, "turns": []}]}, ("judgements", 0)),
        ({"judgements": 3}, ("judgements",)),
    ],
)
def test_a_damaged_record_names_its_key(change: dict[str, JsonValue], key: tuple[str | int, ...]) -> None:
    """Strictly typed: no coercion, no unknown key."""
    text = json.dumps({**RECORD.dump_python(conversation(), mode="json"), **change})
    with pytest.raises(ValidationError) as caught:
        RECORD.validate_json(text)

    assert caught.value.errors()[0]["loc"] == key


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
