"""The report model: its schema, its invariants, and reports of the earlier schema version."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pytest_spiral.errors import DataError
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import load_report, parsed_reason
from pytest_spiral.report.schema import report_schema
from pytest_spiral.status import Reason, ReasonCode
from tests.html.reports import demo_document

VERSION_1 = Path(__file__).parents[1] / "data" / "report_v1.json.gz"


@pytest.fixture
def version_1() -> dict[str, Any]:
    """A report that pytest-spiral 0.1 wrote, conversations that were not run included."""
    document: dict[str, Any] = json.loads(gzip.decompress(VERSION_1.read_bytes()))
    return document


def loaded(document: object, folder: Path) -> Report:
    """What is read from a file that holds the document."""
    path = folder / "report.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return load_report(path)


def test_version_1_is_read(version_1: dict[str, Any], tmp_path: Path) -> None:
    """Values stay what they were; reasons become codes; a second reading gives an equal report."""
    report = loaded(version_1, tmp_path)

    assert report.gates[0].mde == version_1["gates"][0]["mde"]
    assert report.tempaffect.cards[0].score == version_1["tempaffect"]["cards"][0]["score"]
    assert [item.output for item in report.tempaffect.items] == [i["output"] for i in version_1["tempaffect"]["items"]]
    assert report.spiral.scores[0].missing.reasons == {"conversation": {ReasonCode.NOT_STARTED: 25}}
    assert loaded(report.model_dump(mode="json"), tmp_path) == report


def test_a_written_report_meets_the_schema(version_1: dict[str, Any], tmp_path: Path) -> None:
    """The generated schema accepts what is written, and nothing with an unknown key."""
    validator = Draft202012Validator(report_schema())
    document = json.loads(loaded(version_1, tmp_path).model_dump_json())

    validator.validate(document)
    document["tempaffect"]["cards"][0]["extra"] = 1
    assert not validator.is_valid(document)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("timeout: 60 s", Reason(ReasonCode.TIMEOUT, "60 s")),
        ("user model, rate_limited: still 429", Reason(ReasonCode.RATE_LIMITED, "still 429")),
        ("message 7: the same words again", Reason(ReasonCode.SIMULATOR_COLLAPSED, "message 7: the same words again")),
        ("boom: a message of a library", Reason(ReasonCode.IMPORTED_ERROR, "boom: a message of a library")),
    ],
)
def test_reasons_of_version_1(text: str, expected: Reason | None) -> None:
    """A known code is taken as such; anything else is kept as free text under a code of its own."""
    assert parsed_reason(text) == expected


def test_halves_of_surrogate_pairs_are_replaced(version_1: dict[str, Any], tmp_path: Path) -> None:
    """Version 1 held them as escapes; JSON in UTF-8 cannot."""
    version_1["tempaffect"]["items"][0]["output"] = "half \ud83d a pair"

    assert loaded(version_1, tmp_path).tempaffect.items[0].output == "half \ufffd a pair"


def test_a_conversation_names_an_origin_of_the_report(tmp_path: Path) -> None:
    """An index beyond the list is an error that names the conversation."""
    document = demo_document()
    document["spiral"]["conversations"][3]["origin"] = len(document["spiral"]["origins"])

    with pytest.raises(DataError, match=r"spiral: conversations\.3\.origin: expected a number below 2"):
        loaded(document, tmp_path)


@pytest.mark.parametrize("change", [{"status": "not_run"}, {"score": None}, {"score": 1.5}])
def test_a_score_exists_only_where_the_model_answered(
    version_1: dict[str, Any], tmp_path: Path, change: dict[str, Any]
) -> None:
    """An item that was not measured has no score, and one that was has one, in 0..1."""
    version_1["tempaffect"]["items"][0] |= change

    with pytest.raises(DataError, match=r"tempaffect\.items\.0: score: "):
        loaded(version_1, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 3}, "reads up to 2; update pytest-spiral"),
        ({"schema_version": "2"}, "not a report of pytest-spiral"),
        ({"verdict": "splendid"}, "verdict: expected 'pass'"),
        ({"remark": ""}, "remark: unknown key"),
        ({"gates": None}, "not a report of schema version 1|gates: expected a list"),
    ],
)
def test_what_is_not_a_report_is_named(
    version_1: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """The error names the file and the key."""
    with pytest.raises(DataError, match=message) as caught:
        loaded({**version_1, **change}, tmp_path)

    assert str(tmp_path / "report.json") in str(caught.value)
