"""`label import`: foreign codes become ours, what was not labelled stays so, and agreement is that of the file."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main
from pytest_spiral.labelling.files import read_labels
from pytest_spiral.spiral.labels import load_labels
from tests.labelling.formulas import Cells, alpha_by_definition, kappa_by_table

# Written by hand: two raters, 16 turns, two codes; "-" was not looked at, "" is empty, "?" cannot tell.
AGREES = "1 0 0 1 - 0 1 0 0 1 1 0 0 ? 0 1", "1 0 1 1 0 0 0 0 - 1 1 0 0 0 - 0"
WARMTH = "4 2 3 1 5 - 4 3 2 1 5 3 2 4 - 1", "5 2 2 1 4 3 4 - 2 2 5 3 1 3 - 1"
MAPPING = """
suite = "spiral"
raters = "person"
note = "a made-up set"
ignore = ["mood"]

[codes.agrees]
question = "delusion_reinforcement"
answers = { "1" = 1, "0" = 0, "-" = "not labelled", "?" = "cannot tell" }

[codes.warmth]
question = "sycophancy"
answers = { "-" = "not labelled", 1 = 0, 2 = 0, 3 = 1, 4 = 2, 5 = 3 }
"""


def column(marks: str, thresholds: Sequence[int] = ()) -> list[int | None]:
    values = (None if mark in "-?" else int(mark) for mark in marks.split())
    return [v if v is None or not thresholds else sum(v >= bound for bound in thresholds) for v in values]


def hand_written(path: Path) -> Path:
    """The file as its makers wrote it: one row for every answer, texts in the first row of a turn only."""
    rows = [("item", "rater", "question", "answer", "user", "assistant", "cluster")]
    for rater, agrees, warmth in zip(("ann", "ben"), AGREES, WARMTH, strict=True):
        for number, marks in enumerate(zip(agrees.split(), warmth.split(), strict=True)):
            texts = ('said, "so"', f"words {number}", f"c{number // 2}") if rater == "ann" else ("", "", "")
            for question, mark in zip(("agrees", "warmth"), marks, strict=True):
                rows.append((f"t{number}", rater, question, mark, *texts))
            rows.append((f"t{number}", rater, "mood", "blue", *texts))
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return path


def imported(folder: Path, file: Path, mapping: str, capsys: pytest.CaptureFixture[str]) -> Any:
    (folder / "map.toml").write_text(mapping, encoding="utf-8")
    command = ["label", "import", str(file), "--mapping", str(folder / "map.toml"), "-o", str(folder / "out.jsonl")]
    assert main([*command, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_a_file_written_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kappa and alpha are those of independent formulas on the cells, the unlabelled ones included."""
    found = imported(tmp_path, hand_written(tmp_path / "hand.csv"), MAPPING, capsys)
    file = read_labels(tmp_path / "out.jsonl")
    agrees: Cells = [*zip(*map(column, AGREES), strict=True)]
    strengths: Cells = [*zip(*(column(marks, (3, 4, 5)) for marks in WARMTH), strict=True)]
    warm: Cells = [[None if v is None else int(v > 0) for v in row] for row in strengths]

    assert found["whose"] == "people"
    for question, cells in (("delusion_reinforcement", agrees), ("sycophancy", warm)):
        agreement = found["agreement"][question]
        assert agreement["kappa"]["value"] == pytest.approx(kappa_by_table(cells), abs=1e-9)
        assert agreement["alpha"]["value"] == pytest.approx(alpha_by_definition(cells, False), abs=1e-9)
        assert agreement["shared"] == sum(None not in row for row in cells)
        values = [[item.given(question).get(rater) for rater in ("ann", "ben")] for item in file.items]
        assert [[v if v is None else int(v > 0) for v in row] for row in values] == [list(row) for row in cells]
    warmth = found["agreement"]["sycophancy"]["alpha_strength"]["value"]
    assert warmth == pytest.approx(alpha_by_definition(strengths, True), abs=1e-9)
    # Nobody's mark stands for "absent", and the file can be calibrated on.
    assert file.items[13].labels["ann"]["delusion_reinforcement"] == "cannot tell"
    assert set(file.items[14].labels) == {"ann"}
    labelled = load_labels(tmp_path / "out.jsonl", ("delusion_reinforcement", "sycophancy", "pushback"))
    assert (labelled.whose, labelled.turns[0].user, len({turn.unit for turn in labelled.turns})) == (
        "people",
        'said, "so"',
        8,
    )


def test_jsonl_with_a_question_a_column_and_an_adjudicator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other names of columns, numbers and nulls; two codes make one question only as far as both were looked at."""
    rows = [
        {"id": 1, "who": "ann", "scolds": True, "denies": None, "score": 2.5},
        {"id": 1, "who": "gpt", "scolds": False, "denies": None, "score": 4},
        {"id": 2, "who": "ann", "scolds": False, "denies": 0, "score": 1},
        {"id": 2, "who": "gpt", "scolds": False, "denies": 0, "score": None},
        {"id": 1, "who": "both", "scolds": True, "denies": 0, "score": None},
    ]
    path = tmp_path / "wide.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    mapping = """
suite = "tempaffect"
raters = "person"
adjudicator = "both"
wide = ["scolds", "denies", "score"]
columns = { item = "id", rater = "who" }
combine = { non_defensive = "all" }
[rater_kinds]
gpt = "model"
[codes.scolds]
question = "non_defensive"
answers = { true = "no", false = "yes" }
[codes.denies]
question = "non_defensive"
answers = { 1 = "no", 0 = "yes" }
[codes.score]
question = "useful_bounded"
answers = { "1" = "no", "2.5" = "yes", 4 = "yes" }
"""
    found = imported(tmp_path, path, mapping, capsys)
    first, second = read_labels(tmp_path / "out.jsonl").items

    assert found["whose"] == "mixed"
    # One "no" decides; a "yes" to one of two codes does not.
    assert first.labels == {"ann": {"non_defensive": "no", "useful_bounded": "yes"}, "gpt": {"useful_bounded": "yes"}}
    assert second.labels == {"ann": {"non_defensive": "yes", "useful_bounded": "no"}, "gpt": {"non_defensive": "yes"}}
    assert (first.adjudicated, first.truth("non_defensive"), second.adjudicated) == ({"non_defensive": "no"}, 0, {})


@pytest.mark.parametrize(
    ("line", "fault"), [('{"item": "t0", "ra', "not valid JSON"), ("[]", "expected a JSON object of texts and numbers")]
)
def test_a_damaged_line_is_told_from_a_strange_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, fault: str
) -> None:
    """A file that was cut off holds no JSON in its last line."""
    path = tmp_path / "labels.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    (tmp_path / "map.toml").write_text(MAPPING, encoding="utf-8")

    names = [str(tmp_path / name) for name in ("map.toml", "out.jsonl")]
    assert main(["label", "import", str(path), "--mapping", names[0], "-o", names[1]]) == 4
    assert f"labels.jsonl:1: {fault}" in capsys.readouterr().err


LONG = "item,rater,question,answer\n"


@pytest.mark.parametrize(
    ("file", "mapping", "message"),
    [
        (
            LONG + "t0,ann,agrees,2\n",
            {},
            "labels.csv:2: agrees: '2' is not in the mapping, which has '1', '0', '-', '?'",
        ),
        (LONG + "t0,ann,warmth,nan\n", {}, "labels.csv:2: warmth: 'nan' is not in the mapping"),
        (LONG + "t0,ann,rude,1\n", {}, "question 'rude' is not in the mapping; add [codes.\"rude\"] or name it in"),
        (LONG + "t0,,agrees,1\n", {}, "labels.csv:2: rater: empty"),
        (LONG + "t0,ann,agrees,1\nt0,ann,agrees,1\n", {}, "labels.csv:3: ann has answered 'agrees' of item 't0' twice"),
        ("item;rater;question;answer\nt0;ann;agrees;1\n", {}, "no such column beside ['item;rater;question;answer']"),
        ("item,item,rater,question,answer\nt0,t1,ann,agrees,1\n", {}, "labels.csv:1: column 'item' is there twice"),
        # Misspelt names: of a column, whose answers would be left out, and of raters, a model and who settled.
        (
            LONG + "t0,ann,agrees,1\n",
            {"ignore": "columns = { answer = 'value' }\nignore"},
            "columns: no 'value' in",
        ),
        (
            LONG + "t0,ann,agrees,1\n",
            {"ignore": "rater_kinds = { an = 'model' }\nignore"},
            "map.toml: rater_kinds: no 'an' in",
        ),
        (LONG + "t0,ann,agrees,1\n", {"ignore": "adjudicator = 'cem'\nignore"}, "map.toml: adjudicator: no 'cem' in"),
        (LONG + "t0,ann,agrees\n", {}, "labels.csv:2: not as many values as the first line has columns"),
        (LONG + 't0,ann,agrees,"1\n', {}, "not valid CSV"),
        (LONG, {}, "no answer of a rater"),
        (
            "item,rater,question,answer,user\nt0,ann,agrees,1,a\nt0,ben,agrees,1,b\n",
            {},
            "user: not the same in all rows",
        ),
        (LONG + "t0,ann,agrees,1\n", {'raters = "person"': ""}, "map.toml: raters: missing key"),
        (
            LONG + "t0,ann,agrees,1\n",
            {'answers = { "1" = 1, "0" = 0, "-" = "not labelled", "?" = "cannot tell" }': "answers = {}"},
            "map.toml: codes.agrees.answers: Dictionary should have at least 1 item after validation, not 0",
        ),
        (
            LONG + "t0,ann,agrees,1\n",
            {'answers = { "-" = "not labelled", 1 = 0, 2 = 0, 3 = 1, 4 = 2, 5 = 3 }': "thresholds = [3, 4, 5]"},
            "map.toml: codes.warmth.answers: missing key",
        ),
        (LONG + "t0,ann,agrees,1\n", {"delusion_reinforcement": "kindness"}, "'kindness' is no question of spiral"),
        (LONG + "t0,ann,agrees,1\n", {'"1" = 1': '"1" = "yes"'}, "which is no answer of spiral"),
        (LONG + "t0,ann,agrees,1\n", {'"a made-up set"': "2026-01-01\nwide = 3"}, "map.toml: wide: expected a list"),
        (LONG + "t0,ann,agrees,1\n", {"ignore": "columns = { id = 'x' }\nignore"}, "columns: 'id' is none of item"),
        (LONG + "t0,ann,agrees,1\n", {'ignore = ["mood"]': 'wide = ["mood"]'}, "no column 'mood'"),
        (LONG + f"{'t' * 301},ann,agrees,1\n", {}, "301 characters, the limit is 300"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, mapping: Mapping[str, str], message: str
) -> None:
    """Exit code 4, one sentence with file and line, nothing guessed and nothing written."""
    text = MAPPING
    for old, new in mapping.items():
        assert old in text
        text = text.replace(old, new, 1)
    (tmp_path / "labels.csv").write_text(file, encoding="utf-8")
    (tmp_path / "map.toml").write_text(text, encoding="utf-8")
    names = [str(tmp_path / name) for name in ("labels.csv", "map.toml", "out.jsonl")]

    assert main(["label", "import", names[0], "--mapping", names[1], "-o", names[2]]) == 4
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not Path(names[2]).exists()
