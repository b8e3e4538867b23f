"""`label merge`: answers are checked, agreement is that of independent formulas, and differences can be settled."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main
from pytest_spiral.errors import DataError
from pytest_spiral.labelling.agreement import agreement_of
from pytest_spiral.labelling.files import Header, LabelFile, LabelledItem, Rater, read_labels
from pytest_spiral.labelling.sheets import read_sheet
from pytest_spiral.labelling.wording import wording
from tests.labelling.formulas import Cells, alpha_by_definition, kappa_by_table
from tests.labelling.runs import demo_run, export, sheet_in


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pages for two raters."""
    run = demo_run(tmp_path / "run")
    command = ["label", str(run), "-o", str(tmp_path / "labels"), "--raters", "ann,ben", "--items", "12"]
    assert main(command) == 0
    return tmp_path / "labels"


def merged(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    capsys.readouterr()
    assert main(["label", "merge", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def yes(_item: str, _question: str) -> str:
    return "yes"


def test_two_raters_and_an_adjudicator(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The adjudicator settles what differs, "cannot tell" against an answer as well; what is open is unlabelled."""
    sheet, out = sheet_in(folder, "tempaffect"), tmp_path / "labels.jsonl"
    disputed, opened = sheet.items[0].item, sheet.items[1].item

    def ben(item: str, question: str) -> str | None:
        if item == opened:
            return {"useful_bounded": None, "non_defensive": "cannot tell"}.get(question, "yes")
        return "no" if item == disputed and question == "non_defensive" else "yes"

    ann_file = export(folder / "tempaffect" / "tempaffect-ann.jsonl", sheet, "ann", yes)
    ben_file = export(tmp_path / "ben.jsonl", sheet, "ben", ben)
    first = merged(capsys, folder / "tempaffect", ben_file, "-o", out, "--adjudicator", "cem")
    assert (first["unsettled"], first["page"]) == (2, str(folder.resolve() / "tempaffect" / "cem.html"))
    assert first["notes"] == [
        "ben left 1 questions open: not labelled",
        "1 answers differ because a rater cannot tell where another can: for the adjudicator",
    ]
    assert "SETTLED" not in Path(first["page"]).read_text(encoding="utf-8")
    by_id = {row.item: row for row in read_labels(out).items}
    assert by_id[disputed].truth("non_defensive") is None
    assert by_id[disputed].truth("useful_bounded") == 1
    # The lone answer to what another cannot tell settles nothing; the one to what another left open does.
    assert (by_id[opened].truth("non_defensive"), by_id[opened].present("non_defensive")) == (None, None)
    assert by_id[opened].truth("useful_bounded") == 1
    assert by_id[opened].given("useful_bounded") == by_id[opened].given("non_defensive") == {"ann": 1}

    def cem(item: str, _question: str) -> str:
        return "no" if item == disputed else "yes"

    cem_file = export(tmp_path / "cem.jsonl", sheet, "cem", cem, "adjudicate")
    second = merged(capsys, folder / "tempaffect", ben_file, cem_file, "-o", out)
    file = read_labels(out)
    assert (second["unsettled"], second["page"], second["whose"]) == (0, None, "people")
    assert second["notes"][-2:] == [
        "adjudicated: non_defensive, 2 that differ: 1 no, 1 yes",
        "58 adjudicated answers left out: the raters do not differ on them",
    ]
    settled = {row.item: row.adjudicated for row in file.items if row.adjudicated}
    assert settled == {disputed: {"non_defensive": "no"}, opened: {"non_defensive": "yes"}}
    assert file.header.adjudicator is not None
    assert [rater.note for rater in file.header.raters] == [ann_file.name, ben_file.name]
    assert [row.inclusion for row in file.items] == [item.inclusion for item in sheet.items]


def test_answers_to_other_words_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of other words are other pages; their answers are refused, and nobody adjudicates in other words."""
    sheet = sheet_in(folder, "tempaffect")
    ann = export(tmp_path / "ann.jsonl", sheet, "ann", yes)
    ben = export(tmp_path / "ben.jsonl", sheet, "ben", lambda i, q: "no")
    reworded = wording().model_copy(update={"tempaffect": {**wording().tempaffect, "useful_bounded": "Is it good?"}})
    monkeypatch.setattr("pytest_spiral.labelling.wording.wording", lambda: reworded)
    command = ["label", "merge", str(folder / "tempaffect"), str(ann), "-o", str(tmp_path / "labels.jsonl")]

    # Answers agree: the file says what was asked, whatever this version asks.
    assert main(command) == 0
    assert main([*command[:4], str(ben), *command[4:]]) == 4
    err = capsys.readouterr().err
    assert f"raters were asked in other words (wording {sheet.header.wording})" in err
    assert "merge with the version that wrote the pages, or write new ones" in err

    again = ["label", str(tmp_path / "run"), "-o", str(tmp_path / "again"), "--raters", "ann,ben", "--items", "12"]
    assert main([*again, "--suite", "tempaffect"]) == 0
    other = sheet_in(tmp_path / "again", "tempaffect")
    assert other.header.set != sheet.header.set
    assert {item.key for item in other.items}.isdisjoint(item.key for item in sheet.items)
    capsys.readouterr()
    command[2] = str(tmp_path / "again" / "tempaffect")
    assert main(command) == 4
    err = capsys.readouterr().err
    refusal = f"ann.jsonl: answers to other pages ({sheet.header.set}, these are {other.header.set})"
    assert f"{refusal}, whose questions were worded otherwise; merge" in err
    assert "merge them with the sampling.jsonl that was written with their pages" in err

    # Whoever sets the name of the pages right has still answered other questions.
    edited = ann.read_text(encoding="utf-8").replace(sheet.header.set, other.header.set)
    ann.write_text(edited, encoding="utf-8")
    assert main(command) == 4
    assert "whose questions were worded otherwise" in capsys.readouterr().err


def test_a_damaged_sheet_is_refused(folder: Path) -> None:
    """An item without its chance of being drawn, or any other key, is no drawn item; pages are for 20 at most."""
    path = folder / "spiral" / "sampling.jsonl"
    header, first, *others = map(json.loads, path.read_text(encoding="utf-8").splitlines())

    def refusal(*rows: object) -> str:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        with pytest.raises(DataError) as caught:
            read_sheet(path)
        return str(caught.value)

    assert {"mode", "inclusion", "stratum"} < set(first)
    for key in first:
        rest = {name: value for name, value in first.items() if name != key}
        assert f"sampling.jsonl:2: {key}: missing key" in refusal(header, rest, *others)
    raters = [{**header["raters"][0], "name": f"r{number}"} for number in range(21)]
    assert "1: raters: 21 entries, the limit is 20" in refusal({**header, "raters": raters}, first, *others)


def test_the_table_for_people(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whose labels, how many are shared and differ, the coefficients, and what to do next."""
    sheet = sheet_in(folder, "spiral")
    where = folder / "spiral"
    export(where / "a.jsonl", sheet, "ann", lambda i, q: 2 if q == "pushback" else 0)
    export(where / "b.jsonl", sheet, "ben", lambda i, q: int(q == "pushback" and i.endswith("1")) or None)
    capsys.readouterr()
    assert main(["label", "merge", str(where), "-o", str(where / "labels.jsonl")]) == 0
    out = capsys.readouterr().out

    assert "spiral: 12 items, labels of people: ann (person), ben (person)" in out
    assert "adjudicator.html is for adjudicator;" in out
    assert "95 % intervals, clustered; of these items, hard ones over-represented" in out
    # Its own output in the same directory is not taken for answers.
    assert main(["label", "merge", str(where), "-o", str(where / "labels.jsonl")]) == 0
    row = read_labels(where / "labels.jsonl").items[0]
    assert row.text is not None
    assert row.text.assistant == sheet.items[0].text.assistant


def test_nothing_is_over_represented_where_all_are_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Agreement on all replies of the run is what it is called."""
    assert main(["label", str(demo_run(tmp_path / "run")), "-o", str(tmp_path / "all"), "--items", "200"]) == 0
    sheet = sheet_in(tmp_path / "all", "spiral")
    answers = export(tmp_path / "a.jsonl", sheet, sheet.header.raters[0].name, lambda i, q: 1)
    capsys.readouterr()

    assert main(["label", "merge", str(tmp_path / "all/spiral"), str(answers), "-o", str(tmp_path / "l.jsonl")]) == 0
    assert "over-represented" not in capsys.readouterr().out


def damaged(path: Path, change: Mapping[str, object], line: int = 0) -> Path:
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    lines[line] = {**lines[line], **change}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        ({"set": "f" * 16}, 0, "answers to other pages"),
        ({"rater": {"name": "zoe", "kind": "person"}}, 0, "'zoe' has no page in this set"),
        ({"rater": {"name": "ben", "kind": "model"}}, 0, "ben was to be a person, not a model"),
        ({"rater": {"name": "ann", "kind": "person"}}, 0, "ann has another file"),
        ({"item": "0" * 12}, 1, "item 1: '000000000000' is not among the items of these pages"),
        ({"answers": {"pushback": 4}}, 1, "answers.pushback"),
        ({"answers": {"pushback": "yes"}}, 1, "expected a strength from 0 to 3"),
        ({"answers": {"kindness": 1}}, 1, "'kindness' is not among the header's questions"),
        (
            {"answers": {"pushback": {"strength": 1, "quotes": ["never said"]}}},
            1,
            "a marked passage is not in the reply",
        ),
        (
            {"stage": "adjudicate", "rater": {"name": "ben", "kind": "person"}},
            0,
            "ben is a rater and cannot adjudicate",
        ),
        (
            {"stage": "adjudicate", "rater": {"name": "../../cem", "kind": "person"}},
            0,
            "'../../cem' is no name of a rater",
        ),
        (
            {"stage": "adjudicate", "rater": {"name": "\x1b[31m", "kind": "person"}},
            0,
            "'\\x1b[31m' is no name of a rater",
        ),
        ({"version": 9}, 0, "1: version"),
    ],
)
def test_answers_that_do_not_fit_are_refused(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Mapping[str, object],
    line: int,
    message: str,
) -> None:
    """Exit code 4, the file named, nothing written."""
    sheet, out = sheet_in(folder, "spiral"), tmp_path / "labels.jsonl"
    ann = export(tmp_path / "ann.jsonl", sheet, "ann", lambda i, q: 0)
    ben = damaged(export(tmp_path / "ben.jsonl", sheet, "ben", lambda i, q: 0), change, line)
    capsys.readouterr()

    assert main(["label", "merge", str(folder / "spiral"), str(ann), str(ben), "-o", str(out)]) == 4
    err = capsys.readouterr().err
    assert message in err
    assert "ben.jsonl" in err
    assert not out.exists()


def test_answers_twice_and_in_the_wrong_place(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An item that is there twice, no answers at all, no sampling file, an output that would overwrite answers."""
    sheet = sheet_in(folder, "spiral")
    ann = export(tmp_path / "ann.jsonl", sheet, "ann", lambda i, q: 0)
    spiral, out = str(folder / "spiral"), ["-o", str(tmp_path / "labels.jsonl")]
    cases = [
        ([str(folder), *out], "name one of"),
        ([str(ann), *out], "no sampling.jsonl beside the answers"),
        ([spiral, *out], "no answers of a rater"),
        ([spiral, str(ann), "-o", str(ann)], "is read here and would be overwritten"),
        ([spiral, str(ann), *out, "--adjudicator", "ben"], "ben is a rater"),
    ]
    for arguments, message in cases:
        assert main(["label", "merge", *arguments]) == 4
        assert message in capsys.readouterr().err

    ann.write_text(ann.read_text() + ann.read_text().splitlines()[1] + "\n")
    assert main(["label", "merge", spiral, str(ann), *out]) == 4
    assert "is there twice; export the answers again" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(4))
def test_agreement_is_that_of_independent_formulas(seed: int) -> None:
    """Kappa and alpha of a file with unlabelled cells, to 1e-9; what is open or not to be told counts nowhere."""
    rng = random.Random(seed)
    cells: list[list[int | None]] = []
    for _ in range(50):
        truth = rng.choice([0, 0, 1, 2, 3])
        cells.append([rng.choice([truth, truth, rng.randint(0, 3), None]) for _ in range(2)])
    items = []
    for number, row in enumerate(cells):
        labels: dict[str, dict[str, Any]] = {"ann": {}, "ben": {}}
        for rater, value in zip(labels, row, strict=True):
            if value is not None or rng.random() < 0.5:
                labels[rater] = {"pushback": "cannot tell" if value is None else value}
        items.append(LabelledItem(item=f"i{number}", model="m", cluster=f"c{number % 9}", labels=labels))
    header = Header(
        suite="spiral",
        run="",
        report_hash="",
        questions=("pushback",),
        raters=(Rater(name="ann", kind="person"), Rater(name="ben", kind="person")),
    )
    found = agreement_of(LabelFile(header, tuple(items)))["pushback"]

    present: Cells = [[None if value is None else int(value > 0) for value in row] for row in cells]
    for estimate, expected in (
        (found.kappa, kappa_by_table(present)),
        (found.alpha, alpha_by_definition(present, False)),
        (found.alpha_strength, alpha_by_definition(cells, True)),
    ):
        assert estimate is not None
        assert estimate.value == pytest.approx(expected, abs=1e-9)
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high
    assert found.labelled == sum(row != [None, None] for row in cells)
    assert found.shared == sum(None not in row for row in cells)
    assert found.differing == sum(None not in row and row[0] != row[1] for row in cells)


def test_raters_who_never_differ_have_no_interval(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve equal answers do not make an agreement certain."""
    sheet = sheet_in(folder, "spiral")
    files = [export(tmp_path / f"{name}.jsonl", sheet, name, lambda i, q: 0) for name in ("ann", "ben")]
    found = merged(capsys, folder / "spiral", *files, "-o", tmp_path / "labels.jsonl")["agreement"]["pushback"]

    assert found["ac1"] == {"value": 1.0, "low": None, "high": None}
    assert (found["kappa"], found["alpha"]) == (None, None)


@pytest.mark.parametrize("raters", [1, 3])
def test_one_rater_or_three(raters: int) -> None:
    """One rater has no agreement, three have alpha and AC1 and no kappa."""
    names = [f"r{number}" for number in range(raters)]
    values = [(1, 1, 0), (0, 0, 0), (1, 1, 1), (0, 1, 0)]
    items = [
        LabelledItem(
            item=f"i{number}",
            model="m",
            cluster=f"c{number}",
            labels={
                name: {"useful_bounded": "yes" if value else "no"} for name, value in zip(names, row, strict=False)
            },
        )
        for number, row in enumerate(values)
    ]
    header = Header(
        suite="tempaffect",
        run="",
        report_hash="",
        questions=("useful_bounded",),
        raters=tuple(Rater(name=name, kind="person") for name in names),
    )
    found = agreement_of(LabelFile(header, tuple(items)))["useful_bounded"]

    assert found.kappa is None
    assert (found.alpha is None, found.ac1 is None) == (raters == 1, raters == 1)
    if found.alpha:
        assert found.alpha.value == pytest.approx(alpha_by_definition(values, False), abs=1e-9)
