"""The label file: read as it is written, truth by its rules, and faults named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.errors import DataError
from pytest_spiral.labelling.files import Header, LabelFile, LabelledItem, Rater, begins_with, read_labels

ANN, BEN = {"name": "ann", "kind": "person", "note": ""}, {"name": "ben", "kind": "person", "note": "a nurse"}
HEADER: dict[str, Any] = {
    "format": "pytest-spiral labels",
    "version": 1,
    "suite": "spiral",
    "run": "demo",
    "report_hash": "a" * 64,
    "questions": ["pushback", "harmful_advice"],
    "raters": [ANN, BEN],
    "sampling": {"seed": 1, "population": 40, "sampled": 1, "design": "simple random"},
    "adjudicator": {"name": "cem", "kind": "person"},
}
ROW: dict[str, Any] = {
    "item": "td-01-1/3",
    "model": "m",
    "mode": None,
    "cluster": "td-01-1",
    "inclusion": 0.05,
    "stratum": "core",
    "labels": {"ann": {"pushback": 2}, "ben": {"pushback": {"strength": 1, "quotes": ["No."]}}},
    "adjudicated": {},
}
TEMPAFFECT: dict[str, Any] = {**HEADER, "suite": "tempaffect", "questions": ["useful_bounded"]}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def item(labels: dict[str, Any], **other: Any) -> LabelledItem:
    return LabelledItem.model_validate_json(json.dumps({**ROW, "labels": labels, **other}))


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    """The documented form is read, and what is written of it is read as the same."""
    path = written(tmp_path / "labels.jsonl", HEADER, ROW)
    file = read_labels(path)
    again = tmp_path / "again.jsonl"
    again.write_text(file.text(), encoding="utf-8")

    assert read_labels(again) == file
    assert json.loads(file.text().splitlines()[1])["labels"] == ROW["labels"]
    assert begins_with(path)
    assert not begins_with(tmp_path)


@pytest.mark.parametrize(
    ("labels", "truth", "present"),
    [
        ({"ann": {"pushback": 2}, "ben": {"pushback": 2}}, 2, True),
        ({"ann": {"pushback": 2}, "ben": {"pushback": 1}}, None, True),
        ({"ann": {"pushback": 2}, "ben": {"pushback": 0}}, None, None),
        ({"ann": {"pushback": 0}, "ben": {"pushback": {"strength": 0, "quotes": []}}}, 0, False),
        # A definite answer against "cannot tell" is for the adjudicator.
        ({"ann": {"pushback": 3}, "ben": {"pushback": "cannot tell"}}, None, None),
        ({"ann": {"pushback": 3}, "ben": {}}, 3, True),
        ({"ann": {"pushback": "cannot tell"}, "ben": {"pushback": "cannot tell"}}, None, None),
        ({"ann": {"harmful_advice": 0}, "ben": {}}, None, None),
        ({"ann": {"pushback": "cannot tell"}}, None, None),
    ],
)
def test_the_truth_of_an_item(labels: dict[str, Any], truth: int | None, present: bool | None) -> None:
    """The common answer of those who answered; what nobody answered is not labelled, and no "no"."""
    row = item(labels)

    assert (row.truth("pushback"), row.present("pushback")) == (truth, present)


def test_the_adjudicator_settles_what_is_disputed() -> None:
    """The adjudicated answer holds, and where the adjudicator cannot tell either, there is none."""
    labels = {"ann": {"pushback": 2}, "ben": {"pushback": 0}}
    settled = item(labels, adjudicated={"pushback": 1})
    open_still = item(labels, adjudicated={"pushback": "cannot tell"})

    assert (settled.truth("pushback"), settled.present("pushback")) == (1, True)
    assert (open_still.truth("pushback"), open_still.present("pushback")) == (None, None)


@pytest.mark.parametrize(
    ("kinds", "adjudicator", "whose"),
    [
        (["person", "person"], "person", "people"),
        (["person"], None, "people"),
        (["model", "model"], None, "model raters"),
        (["person", "model"], "person", "mixed"),
        (["person", "person"], "model", "mixed"),
    ],
)
def test_whose_labels(kinds: list[str], adjudicator: str | None, whose: str) -> None:
    """One model among them, the adjudicator included, and they are not people's any more."""
    raters = [{"name": f"r{number}", "kind": kind} for number, kind in enumerate(kinds)]
    last = {"name": "z", "kind": adjudicator} if adjudicator else None
    header = Header.model_validate_json(json.dumps({**HEADER, "raters": raters, "adjudicator": last}))

    assert header.whose == whose


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "empty"),
        ([{**HEADER, "version": 2}], "1: version"),
        ([{**HEADER, "raters": []}], "1: raters"),
        ([HEADER, {**ROW, "labels": {"zoe": {}}}], "item 1: labels: 'zoe' is not among the header's raters"),
        (
            [HEADER, {**ROW, "labels": {"ann": {"pushed": 1}}}],
            "item 1: labels: 'pushed' is not among the header's questions",
        ),
        ([HEADER, {**ROW, "labels": {"ann": {"pushback": "yes"}}}], "item 1: labels.pushback: expected a strength"),
        ([HEADER, {**ROW, "labels": {"ann": {"pushback": 4}}}], "2: labels.ann.pushback"),
        ([HEADER, {**ROW, "labels": {"ann": {"pushback": True}}}], "2: labels.ann.pushback"),
        (
            [TEMPAFFECT, {**ROW, "labels": {"ann": {"useful_bounded": 1}}}],
            "item 1: labels.useful_bounded: expected yes or",
        ),
        ([HEADER, {**ROW, "inclusion": 0}], "2: inclusion"),
        ([HEADER, ROW, ROW], "item 2: 'td-01-1/3' is there twice for 'm'"),
        (
            [{**HEADER, "adjudicator": None}, {**ROW, "adjudicated": {"pushback": 1}}],
            "item 1: adjudicated: the header names",
        ),
        ([HEADER], "0 items, but 1 were drawn"),
        ([{**HEADER, "raters": [ANN, BEN, {**ANN, "kind": "model"}]}, ROW], "1: raters: 'ann' is there twice"),
        ([{**HEADER, "adjudicator": {"name": "ben", "kind": "person"}}, ROW], "1: raters and adjudicator: 'ben' is"),
        ([{**HEADER, "questions": ["pushback", "pushback"]}, ROW], "1: questions: 'pushback' is there twice"),
        ([{**TEMPAFFECT, "questions": ["charm"]}, ROW], "1: questions: 'charm' is none of content_grounding, "),
        ([HEADER, {k: v for k, v in ROW.items() if k != "inclusion"}], "item 1: inclusion: missing key"),
        ([HEADER, {**ROW, "item": "x" * 301}], "2: item: 301 characters, the limit is 300"),
    ],
)
def test_a_wrong_file_is_named_by_line_and_key(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    """One sentence with file, line and key."""
    path = written(tmp_path / "labels.jsonl", *rows)

    with pytest.raises(DataError) as caught:
        read_labels(path)

    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_rater_who_labels_an_item_twice_is_told(tmp_path: Path) -> None:
    """JSON keeps the last of two equal keys, and the first answers would be lost."""
    line = json.dumps({**ROW, "labels": {"ann": {"pushback": 2}, "ANN": {"pushback": 0}}}).replace("ANN", "ann")
    path = tmp_path / "labels.jsonl"
    path.write_text(f"{json.dumps(HEADER)}\n{line}\n")

    with pytest.raises(DataError, match=r"labels\.jsonl:2: key 'ann' occurs twice in one object"):
        read_labels(path)


def test_a_file_made_in_code_has_the_documented_keys() -> None:
    """The first line is the header, with every key."""
    header = Header(
        suite="spiral", run="r", report_hash="", questions=("pushback",), raters=(Rater(name="ann", kind="person"),)
    )

    assert list(json.loads(LabelFile(header, ()).text())) == list(HEADER)
