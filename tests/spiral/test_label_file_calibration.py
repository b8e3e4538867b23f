"""Judges measured against a label file: whose labels, what is not labelled, and what was settled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main
from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.inputs import SpiralContext
from pytest_spiral.evaluate.spiral import _calibrations
from pytest_spiral.labelling.files import Header, ItemText, LabelFile, LabelledItem, Rater, Sampling
from pytest_spiral.spiral.calibration import agreement_among_raters
from pytest_spiral.spiral.labels import LabelledSet, load_labels
from pytest_spiral.spiral.protocol import load_protocol
from tests.spiral.builders import present
from tests.spiral.labelled import BEHAVIOURS, judged_as, run

ASKED = ("pushback", "harmful_advice")


def row(number: int, ann: dict[str, Any], ben: dict[str, Any], **other: Any) -> LabelledItem:
    text = ItemText(opening="o", before="b", user="u", assistant=f"words {number}")
    labels = {"ann": ann, "ben": ben}
    return LabelledItem(item=f"c{number}/1", model="m", cluster=f"c{number}", labels=labels, text=text, **other)


def written(path: Path, *rows: LabelledItem, **header: Any) -> Path:
    raters = (Rater(name="ann", kind="person"), Rater(name="ben", kind="person"))
    top = {"suite": "spiral", "run": "r", "report_hash": "", "questions": ASKED, "raters": raters, **header}
    path.write_text(LabelFile(Header(**top), rows).text(), encoding="utf-8")
    return path


def settled(labelled: LabelledSet, behaviour: str) -> list[int | None]:
    return [turn.reference(behaviour) for turn in labelled.turns]


def test_the_reference_is_what_was_settled(tmp_path: Path) -> None:
    """Adjudicated, else agreed; disputed or open is not labelled; of strengths in dispute the lower."""
    adjudicator = {"name": "cem", "kind": "person"}
    path = written(
        tmp_path / "labels.jsonl",
        row(0, {"pushback": 2}, {"pushback": 2, "harmful_advice": 0}),
        row(1, {"pushback": 3}, {"pushback": 0}),
        row(2, {"pushback": 3}, {"pushback": 0}, adjudicated={"pushback": 1}),
        row(3, {"pushback": 3}, {"pushback": 1, "harmful_advice": "cannot tell"}),
        row(4, {"pushback": 0}, {"pushback": "cannot tell"}),
        row(5, {}, {"pushback": 1}, stratum="disagreement"),
        adjudicator=adjudicator,
    )
    labelled = load_labels(path, ASKED)

    # What one rater cannot tell is not settled by the other.
    assert settled(labelled, "pushback") == [2, 1, 1]
    assert settled(labelled, "harmful_advice") == [0, None, None]
    assert [turn.id for turn in labelled.turns] == ["m c0/1", "m c2/1", "m c3/1"]
    assert labelled.turns[0].chunk.context[0].assistant == "b"
    assert "3 answers on which raters differ are not adjudicated; 1 turns outside the random core" in labelled.basis
    assert present(agreement_among_raters(labelled, "pushback")).turns == 3
    other = written(
        tmp_path / "other.jsonl",
        row(0, {"pushback": 2}, {"pushback": 2}, adjudicated={"pushback": 1}),
        adjudicator=adjudicator,
    )
    same = written(tmp_path / "same.jsonl", row(0, {"pushback": 2}, {"pushback": 2}), adjudicator=adjudicator)
    assert load_labels(other, ASKED).hash != load_labels(same, ASKED).hash


def test_what_nobody_labelled_has_no_figures(tmp_path: Path) -> None:
    """Sensitivity and specificity come from the labelled turns alone, and the report says they are people's."""
    rows = [row(n, {"pushback": 2 * (n % 2)}, {"pushback": 2 * (n % 2)}) for n in range(40)]
    labelled = load_labels(written(tmp_path / "labels.jsonl", *rows), ASKED)
    judged = {turn.id: judged_as(turn, {"pushback": 2 * (place % 4 == 1)}) for place, turn in enumerate(labelled.turns)}
    result = run(labelled, judged)
    pushback, harm = result.record.behaviours["pushback"], result.record.behaviours["harmful_advice"]

    assert (pushback.positives, pushback.negatives, harm.n) == (20, 20, 0)
    assert (present(pushback.sensitivity).value, present(pushback.specificity).value) == (0.5, 1.0)
    assert harm.specificity is None
    context = SpiralContext(load_protocol("per-turn"), 1, calibrated={"j": result.report(None)})
    assert _calibrations([], context)["j"].whose == result.whose == "people"


def test_turns_of_few_conversations_leave_chance(tmp_path: Path) -> None:
    """A judge that is right on six turns of two conversations may still be wrong on half of others."""
    rows = [
        row(n, {"pushback": n % 2}, {"pushback": n % 2}).model_copy(update={"cluster": f"c{n % 4}"}) for n in range(12)
    ]
    labelled = load_labels(written(tmp_path / "labels.jsonl", *rows), ASKED)
    right = run(
        labelled, {turn.id: judged_as(turn, {"pushback": turn.reference("pushback") or 0}) for turn in labelled.turns}
    )
    found = right.record.behaviours["pushback"]

    for estimate in (found.sensitivity, found.specificity):
        assert (present(estimate).value, present(estimate).high) == (1.0, 1.0)
        # Wilson's interval of two of two.
        assert present(estimate).low == pytest.approx(0.342, abs=1e-3)


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("person", "person"), "against people\n"),
        (("model", "model"), "against model raters\n"),
        (("person", "model"), "against people and model raters\n"),
    ],
)
def test_the_command_says_whose_labels(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kinds: tuple[Any, Any],
    said: str,
) -> None:
    """In text and JSON, and on stderr how the labels were read."""
    monkeypatch.chdir(tmp_path)
    raters = tuple(Rater(name=name, kind=kind) for name, kind in zip(("ann", "ben"), kinds, strict=True))
    rows = [row(n, {"pushback": n % 2}, {"pushback": n % 2}) for n in range(4)]
    path = written(tmp_path / "labels.jsonl", *rows, raters=raters)
    command = ["calibrate", "--judge-model", "dry/lexical", "--labels", str(path)]

    assert main(command) == 1
    out, err = capsys.readouterr()
    assert said in out
    assert "what nobody answered is not labelled" in err
    assert main([*command, "--json"]) == 1
    whose = json.loads(capsys.readouterr().out)["judges"]["dry/lexical"]["whose"]
    assert said.startswith({"mixed": "against people and"}.get(whose, f"against {whose}"))


def test_labels_that_judges_cannot_be_measured_on(tmp_path: Path) -> None:
    """Of the other suite, of another rubric, without texts, or without an agreed label."""
    bare = LabelledItem(item="c/1", model="m", cluster="c", labels={"ann": {"pushback": 1}})
    design = Sampling(seed=1, population=9, sampled=1, design="")
    cases = [
        (written(tmp_path / "a", suite="tempaffect", questions=("useful_bounded",)), "labels of TempAffect replies"),
        (written(tmp_path / "b", questions=("kindness",)), "'kindness' is no behaviour"),
        (written(tmp_path / "c", bare, sampling=design), "c/1: text: missing key"),
        (written(tmp_path / "d", row(0, {"pushback": 1}, {"pushback": 0})), "no turn in it with a label"),
    ]
    for path, message in cases:
        with pytest.raises(DataError, match=message):
            load_labels(path, ASKED)


def test_shipped_labels_are_model_raters() -> None:
    """Until people have labelled, calibrations say so."""
    assert load_labels(None, BEHAVIOURS).whose == "model raters"
