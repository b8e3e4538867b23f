"""Labelled turns: the shipped set, and files of labels."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.errors import DataError
from pytest_spiral.gates.decision import NOTHING_MEASURED, with_standing
from pytest_spiral.report.terminal import calibration_lines
from pytest_spiral.resources import data_root
from pytest_spiral.spiral import load_protocol
from pytest_spiral.spiral.agreement import agreement_on
from pytest_spiral.spiral.calibration import agreement_among_raters, standing
from pytest_spiral.spiral.labels import load_labels, sheet
from pytest_spiral.spiral.upstream import dump_upstream
from pytest_spiral.stats import Clusters
from tests.spiral.builders import conversation, judged, present
from tests.spiral.labelled import (
    BEHAVIOURS,
    DOCS,
    judged_as,
    labels_file,
    ranged,
    run,
    seen_as_labelled,
    shipped,
    table,
)


@pytest.fixture
def labels_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped labels that is read in their place."""
    folder = tmp_path / "data" / "spiral" / "calibration"
    shutil.copytree(data_root() / "spiral" / "calibration", folder)
    monkeypatch.setattr("pytest_spiral.spiral.labels.data_root", lambda: tmp_path / "data")
    return folder / "labels"


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# The shipped set


def test_the_shipped_set_covers_what_it_should() -> None:
    """Every behaviour at every strength, things that look like one and are none, quotes, metaphors."""
    labelled = shipped()
    cells = Counter((b, turn.reference(b)) for turn in labelled.turns for b in BEHAVIOURS)
    kinds = Counter(kind for turn in labelled.turns for kind in turn.about)

    assert len(labelled.turns) >= 180
    assert len({turn.assistant for turn in labelled.turns}) == len(labelled.turns)
    assert all(cells[behaviour, strength] >= 3 for behaviour in BEHAVIOURS for strength in (1, 2, 3))
    assert min(kinds["hard_negative"], kinds["benign"]) >= 15
    assert min(kinds["quote_refuted"], kinds["metaphor"]) >= 7
    assert table("judges.md", "behaviour | 1 | 2 | 3") == [
        [behaviour, *(str(cells[behaviour, strength]) for strength in (1, 2, 3))] for behaviour in BEHAVIOURS
    ]


def test_three_raters_make_the_truth_and_the_author_none(labels_folder: Path) -> None:
    """Whatever the author's files say, reference and hash stay; a second of three raters changes both."""
    before = load_labels(None, BEHAVIOURS)
    nothing: dict[str, object] = {turn.id: {} for turn in before.turns}
    for name in ("author", "second_reading"):
        rewrite(labels_folder / f"{name}.json", labels=nothing)
    without = load_labels(None, BEHAVIOURS)
    rewrite(labels_folder / "rater_1.json", labels=nothing)
    rewrite(labels_folder / "rater_2.json", labels=nothing)
    changed = load_labels(None, BEHAVIOURS)

    assert list(before.raters) == ["rater 1", "rater 2", "rater 3"]
    assert (without.hash, without.turns[0].reference("pushback")) == (before.hash, 1)
    assert changed.turns[0].reference("pushback") == 0
    assert changed.hash != before.hash


def test_agreement_of_the_raters_is_what_the_page_says() -> None:
    """Alpha with intervals, turns in which they differ, and the consensus against what the author meant."""
    rows = []
    author = json.loads((data_root() / "spiral" / "calibration" / "labels" / "author.json").read_text())["labels"]
    for name in BEHAVIOURS:
        alpha = present(agreement_among_raters(shipped(), name))
        pairs = [(present(turn.reference(name)), author[turn.id].get(name, 0)) for turn in shipped().turns]
        units = (turn.unit for turn in shipped().turns)
        rated = Clusters.group("conversation", zip(units, (tuple(map(float, pair)) for pair in pairs), strict=True))
        meant = agreement_on(rated, ["consensus", "author"], "raters")
        seen = Counter((bool(reference), bool(intended)) for reference, intended in pairs)
        differ = sum(len({given.get(name, 0) for given in turn.labels.values()}) > 1 for turn in shipped().turns)
        rows.append(
            [
                name,
                ranged(alpha.presence, alpha.presence_interval),
                ranged(alpha.strength, alpha.strength_interval),
                str(differ),
                ranged(meant.presence, meant.presence_interval),
                f"{seen[True, True]}, {seen[True, False]}, {seen[False, True]}",
            ]
        )
    same = sum(
        {name: strength for name in BEHAVIOURS if (strength := turn.reference(name))} == author[turn.id]
        for turn in shipped().turns
    )
    page = (DOCS / "judges.md").read_text()

    assert table("judges.md", ALPHA_HEAD) == rows
    assert f"They differ on {sum(turn.is_disputed for turn in shipped().turns)} of the 200 turns" in page
    assert f"the author meant on {same} turns of 200" in page


ALPHA_HEAD = "behaviour | presence | strength | turns in which they differ | author | both, raters only, author only"


def test_hard_negatives_that_the_raters_took_for_the_thing() -> None:
    """The page names each: a near miss of a behaviour that the consensus has all the same."""
    taken = [
        turn.id for turn in shipped().turns if "hard_negative" in turn.about and any(map(turn.reference, turn.about))
    ]

    assert taken == ["cal-026"]
    assert "`cal-026`" in (DOCS / "judges.md").read_text()


@pytest.mark.parametrize(("name", "protocol"), [("calibration", "per-10k-chars"), ("calibration_2", "per-turn")])
def test_the_shipped_label_files_fit_together(name: str, protocol: str) -> None:
    """Each rater has one file, and what has a label was looked for and is a behaviour of the protocol."""
    folder = data_root() / "spiral" / name / "labels"
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    behaviours = {*load_protocol(protocol).behaviours}

    assert any(file["role"] == "rater" for file in files)
    assert len({file["rater"] for file in files}) == len(files)
    for file in files:
        assert {label for given in file["labels"].values() for label in given} <= {*file["labelled"]} <= behaviours


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"role": "judge"}, r"rater_2\.json: role"),
        ({"labels": {"cal-001": {}}}, r"rater_2\.json: labels: cal-002 is in only one"),
        ({"labels": {"cal-001": {"pushback": 4}}}, r"rater_2\.json: labels\.cal-001\.pushback"),
        ({"labels": {"cal-001": {"pushback": True}}}, r"rater_2\.json: labels\.cal-001\.pushback"),
    ],
)
def test_a_bad_rater_file_is_named(labels_folder: Path, changes: dict[str, object], says: str) -> None:
    """File and key."""
    rewrite(labels_folder / "rater_2.json", **changes)

    with pytest.raises(DataError, match=says):
        load_labels(None, BEHAVIOURS)


def test_the_sheet_shows_nothing() -> None:
    """Other ids and another order for every rater; no label, no hint of what a turn was written for."""
    labelled = shipped()
    one, two = sheet(labelled, "ann"), sheet(labelled, "ben")
    heads = [rows.pop(0) for rows in (one, two)]
    ids = [{row["id"] for row in rows} for rows in (one, two, sheet(labelled, "ann")[1:])]

    assert heads == [{"labelled": sorted(BEHAVIOURS)}] * 2
    assert [row["assistant"] for row in one] != [row["assistant"] for row in two]
    assert {frozenset(row) for row in one} == {frozenset({"id", "opening", "before", "user", "assistant", "labels"})}
    assert not any(row["labels"] for row in one)
    assert len(ids[0]) == len(labelled.turns)
    assert (ids[0] & ids[1], ids[0] & {turn.id for turn in labelled.turns}, ids[0] ^ ids[2]) == (set(), set(), set())


def test_a_sheet_is_a_file_of_labels(tmp_path: Path) -> None:
    """Filled in, it leads back to whole turns: to all that a judge is shown, and all that the rater looked for."""
    behaviours = load_protocol("per-turn").behaviours
    labelled = load_labels(None, behaviours)
    by_reply = {turn.assistant: turn for turn in labelled.turns}
    head, *rows = sheet(labelled, "ann")
    for row in rows:
        row["labels"] = dict(by_reply[str(row["assistant"])].labels["rater 1"])
    path = tmp_path / "sheet.jsonl"
    path.write_text("\n".join(map(json.dumps, [head, *rows])))
    read = load_labels(path, behaviours)

    assert len(read.turns) == len(by_reply) == len(labelled.turns)
    for turn in read.turns:
        shown = by_reply[turn.assistant]
        assert (turn.opening, turn.before, turn.user) == (shown.opening, shown.before, shown.user)
        assert turn.opening
        assert turn.before
        assert turn.behaviours == shown.behaviours == {*behaviours}
        assert turn.labels == {"rater": shown.labels["rater 1"]}


# Records


def test_several_raters(tmp_path: Path) -> None:
    """Kept apart; presence by majority, strength by the lower median; disagreements listed, agreement reported."""
    path = tmp_path / "labels.jsonl"
    rows: list[dict[str, object]] = [{"labelled": ["pushback", "harmful_advice"]}]
    rows += [
        {"id": f"t{n}", "user": "u", "assistant": f"words {n}", "labels": {
            "ann": {"pushback": 3} if n % 2 else {},
            "ben": {"pushback": 2} if n % 2 else {"harmful_advice": 1},
            "cem": {"pushback": 1} if n % 2 else {},
        }}
        for n in range(20)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    labelled = load_labels(path, BEHAVIOURS)
    result = run(labelled, {t.id: judged_as(t, {"pushback": present(t.reference("pushback"))}) for t in labelled.turns})

    assert [labelled.turns[n].reference("pushback") for n in (0, 1)] == [0, 2]
    assert labelled.turns[0].reference("harmful_advice") == 0
    assert len(result.disagreements) == 20
    assert present(result.agreement["pushback"]).presence == 1
    assert 0.5 < present(present(result.agreement["pushback"]).strength) < 1
    assert present(present(result.agreement["harmful_advice"]).strength) < 0.1


def test_what_nobody_looked_for_has_no_figure(tmp_path: Path) -> None:
    """Ninety turns read for one behaviour say nothing about another: no figure, no standing, and both are said."""
    rows = [{"labels": {"harmful_advice": 2} if n < 30 else {}} for n in range(90)]
    result = seen_as_labelled(labels_file(tmp_path, {"labelled": ["harmful_advice"]}, *rows))
    read, unread = result.record.behaviours["harmful_advice"], result.record.behaviours["pushback"]
    lines = list(calibration_lines(result, None))

    assert (read.positives, read.negatives, present(read.kappa).value) == (30, 60, 1)
    assert (unread.n, unread.positives, unread.negatives) == (0, 0, 0)
    assert unread.sensitivity is unread.specificity is unread.kappa is result.strength["pushback"] is None
    assert result.agreement["pushback"] is None
    assert result.below == {}
    assert set(result.uncalibrated) == {*BEHAVIOURS} - {"harmful_advice"}
    assert f"{'pushback':<34}  not labelled" in lines
    lacking = ", ".join(name for name in BEHAVIOURS if name != "harmful_advice")
    assert f"uncalibrated, not labelled: needs 10 turns with it and 10 without: {lacking}" in lines
    assert "publication: blocked" in lines
    assert with_standing(NOTHING_MEASURED, *standing(result.record, "pushback")).judge == "uncalibrated"


def test_a_file_that_does_not_say_what_was_looked_for(tmp_path: Path) -> None:
    """Only what it names counts, the strength 0 included; the line that would tell is printed, and it tells."""
    rows = [{"labels": {"pushback": 1} if n % 3 else {"de_escalation": 0}} for n in range(9)] + [{"labels": {}}]
    silent_file = labels_file(tmp_path, *rows)
    result = seen_as_labelled(silent_file)
    pushback, calming = (result.record.behaviours[name] for name in ("pushback", "de_escalation"))
    stated = labels_file(tmp_path, json.loads(silent_file.basis.split("first line: ")[1].split(";")[0]), *rows)
    after = seen_as_labelled(stated).record.behaviours["pushback"]

    assert (pushback.positives, pushback.negatives) == (6, 0)
    assert (calming.positives, calming.negatives) == (0, 3)
    assert (present(pushback.sensitivity).value, pushback.specificity, pushback.kappa) == (1, None, None)
    blind = run(silent_file, {turn.id: judged_as(turn, {}) for turn in silent_file.turns})
    assert blind.record.behaviours["pushback"].kappa is blind.strength["pushback"] is None
    assert "10 of 10 turns do not say what was looked for" in silent_file.basis
    assert silent_file.basis.endswith("1 turns for which nobody looked for anything are left out")
    assert (len(silent_file.turns), len(stated.turns)) == (9, 10)
    assert (after.positives, after.negatives, present(after.specificity).value) == (6, 4, 1)
    assert stated.hash != silent_file.hash


def test_raters_who_did_not_look_have_no_say(tmp_path: Path) -> None:
    """The reference is the majority of those who looked at this turn; unless that is said, what all name counts."""
    labels = {"ann": {"pushback": 3}, "ben": {"harmful_advice": 1}, "cem": {"harmful_advice": 0}}
    by_rater = {"ann": ["pushback"], "ben": ["harmful_advice", "pushback"], "cem": ["harmful_advice"]}
    turns = labels_file(
        tmp_path,
        {"labelled": by_rater},
        {"labels": labels},
        {"labels": {"ann": {"pushback": 2}}},
        {"labels": {"ann": {"pushback": 2}, "ben": {"pushback": 1}}, "labelled": ["pushback"]},
        {"labels": {"ann": {}, "ben": {}}, "labelled": []},
    ).turns
    [unstated] = labels_file(
        tmp_path, {"labels": {"ann": {"pushback": 3, "de_escalation": 1}, "ben": {"pushback": 0}}}
    ).turns

    assert turns[0].given("pushback") == {"ann": 3, "ben": 0}
    assert turns[0].given("harmful_advice") == {"ben": 1, "cem": 0}
    assert [turn.reference("pushback") for turn in turns] == [0, 2, 1]
    assert [turn.is_disputed for turn in turns] == [True, False, True]
    assert turns[1].reference("harmful_advice") is None
    assert (unstated.reference("pushback"), unstated.reference("de_escalation")) == (0, None)


def test_a_behaviour_that_the_shipped_raters_did_not_know() -> None:
    """One that a new rubric adds is not labelled in the shipped set, rather than absent from every turn."""
    labelled = load_labels(None, [*BEHAVIOURS, "mirroring"])

    assert labelled.turns[0].reference("pushback") == 1
    assert {turn.reference("mirroring") for turn in labelled.turns} == {None}


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
        ('{"id": "a", "user": "u", "assistant": "x", "labels": {}}', r"no labelled turn"),
        ('{"labelled": ["joy"]}', r":1: labelled: 'joy' is no behaviour"),
        ('{"id": "a", "user": "u", "assistant": "x", "labels": {}, "labelled": ["joy"]}', r":1: labelled: 'joy' is no"),
        ('{"id": "a", "user": "u", "assistant": "x", "labels": {"pushback": 1}, "labelled": []}', r"1: labels: 'pushb"),
        (
            '{"id": "a", "user": "u", "assistant": "x", "labels": {"ann": {"pushback": 1}}, "labelled": {"ben": []}}',
            r":1: labels: 'pushback' has a label, and 'labelled' does not name it",
        ),
    ],
)
def test_a_bad_labels_file_is_named(tmp_path: Path, line: str, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    """File, line, key; on the command line exit code 4 and no traceback."""
    path = tmp_path / "labels.jsonl"
    path.write_text(line)

    with pytest.raises(DataError, match=rf"labels\.jsonl.*{fault}"):
        load_labels(path, BEHAVIOURS)
    assert main(["calibrate", "--judge-model", "dry/lexical", "--labels", str(path)]) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_a_result_file_with_too_many_turns_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A judge measured on a part of the turns would be taken for one measured on all of them."""
    path = tmp_path / "results.json"
    held = [conversation(f"p{n}", turns=1, judgements=(judged(0),)) for n in range(2)]
    dump_upstream(held, path)

    assert len(load_labels(path, BEHAVIOURS).turns) == 2
    monkeypatch.setattr("pytest_spiral.spiral.labels.MAX_TURNS", 1)
    with pytest.raises(DataError, match="2 judged turns in it; give a file with 1 to 1"):
        load_labels(path, BEHAVIOURS)
