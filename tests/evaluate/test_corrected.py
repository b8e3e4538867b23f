"""Numbers corrected by labels: the section of the report, gates on it, the command, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from pytest_spiral.cli import main
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.evaluate.corrected import check_gate, with_labels
from pytest_spiral.evaluate.inputs import GivenLabels
from pytest_spiral.evaluate.report import evaluate
from pytest_spiral.gates import parse_gate
from pytest_spiral.labelling.files import LabelAnswer, LabelFile
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import FailedPart, GateRow, Report
from pytest_spiral.report.model.corrected import CorrectedFigure
from pytest_spiral.report.model.parts import PartCode
from pytest_spiral.report.read import load_report
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.write import write_results
from pytest_spiral.stats import Clusters, Corrected, Rated, corrected_mean
from tests.evaluate.labelled_runs import labels, mostly, report, results, useful, written
from tests.fakes.bootstrap import few_draws
from tests.html.reports import GOOD

GATE = "tempaffect.corrected.useful_bounded >= 0.3"


def given(file: LabelFile) -> GivenLabels:
    return GivenLabels("labels.jsonl", "d" * 64, file)


def corrected(file: LabelFile, *gates: str) -> Report:
    return with_labels(report(), [given(file)], [parse_gate(gate) for gate in gates], "bound")


def figure(file: LabelFile) -> CorrectedFigure:
    section = corrected(file).corrected
    assert section is not None
    (row,) = section.figures
    return row


def decided(file: LabelFile, gate: str) -> GateRow:
    (row,) = corrected(file, gate).gates
    return row


def test_a_number_is_corrected_by_the_labels_of_a_sample() -> None:
    """Raw is the card's own number; the corrected one and its interval are those of the formula over scenarios."""
    file = labels({"ann": mostly(0.9), "ben": lambda *_: None})

    row = figure(file)
    card = report().tempaffect.cards[0]
    truth = {one.item: (float(one.present("useful_bounded") or 0), one.inclusion) for one in file.items}
    items = [
        (one.id, Rated(float(bool(one.useful_bounded)), *truth.get(f"{one.id}/schema/{one.epoch}", (None, 1.0))))
        for one in report().tempaffect.items
    ]
    expected = corrected_mean(Clusters.group("scenario", items))

    assert isinstance(expected, Corrected)
    assert (row.metric, row.model, row.prompting_mode, row.unit) == (
        "useful_bounded",
        GOOD,
        "schema_assisted",
        "scenario",
    )
    assert row.raw == pytest.approx(card.useful_bounded_response_rate)
    assert (row.value, row.low, row.high) == pytest.approx(
        (expected.value, expected.interval.low, expected.interval.high)
    )
    assert (row.labels, row.items, row.units, row.unsettled) == (90, 150, 75, 0)


def test_whose_labels_they_are_is_shown_everywhere() -> None:
    """In the report, the terminal and the summary, with the names; the measured numbers stay as they are."""
    made = corrected(labels({"ann": mostly(0.9), "ben": mostly(0.9)}))
    models = corrected(labels({"ann": mostly(1.0)}, kind="model"))

    terminal = "\n".join(line for line, _ in summary_lines(made, "reports/x"))
    markdown = summary_markdown(made)
    assert "corrected by labels of people (ann, ben)" in " ".join(terminal.split())
    assert "corrected by labels of people \\(ann, ben\\)" in markdown
    assert "### Corrected by labels" in markdown
    assert models.corrected is not None
    assert models.corrected.sources[0].whose == "model raters"
    assert made.tempaffect == report().tempaffect


def test_what_raters_left_open_is_no_label_and_counts_at_its_worst() -> None:
    """Disputed, "cannot tell" and not answered replies are left out of the number, and can decide a gate."""
    doubts: Mapping[int, LabelAnswer | None] = {0: "cannot tell", 1: None}

    def unsure(item: str, _: str) -> LabelAnswer | None:
        number = int(item.split("/")[0][3:])
        return doubts[number % 5] if number % 5 in doubts else "yes" if useful(item) else "no"

    file, sure = labels({"ann": unsure}, 120), labels({"ann": mostly(1.0)}, 120)
    row = figure(file)
    threshold = f"tempaffect.corrected.useful_bounded >= {(row.low or 0) - 0.03:.3f}"
    doubted, settled = decided(file, threshold), decided(sure, threshold)

    assert row.unsettled == 120 - row.labels > 20
    assert row.value == pytest.approx(row.raw, abs=0.05)
    assert (doubted.outcome, doubted.worst_case, doubted.reason.code) == (
        "inconclusive",
        "inconclusive",
        "missing_decides",
    )
    assert settled.outcome == "pass"


def test_gates_on_corrected_numbers() -> None:
    """Decided at the bound of the corrected number, whatever the scorer says; the verdict follows."""
    strict = labels({"ann": lambda item, _: "yes" if useful(item) and item[3:5] < "12" else "no"}, 120)

    passes, fails = corrected(labels({"ann": mostly(1.0)}), GATE), corrected(strict, GATE.replace("0.3", "0.6"))

    assert (passes.verdict, fails.verdict) == ("pass", "fail")
    assert [row.reason.code for row in (*passes.gates, *fails.gates)] == ["bound_met", "bound_missed"]
    assert fails.gates[0].value == pytest.approx(figure(strict).value)
    card = report().tempaffect.cards[0]
    assert (card.useful_bounded_response_rate or 0) > 0.6


def test_too_few_labels_are_refused_and_leave_a_gate_open() -> None:
    """The section and the gate say how many more labels it takes."""
    file = labels({"ann": mostly(1.0)}, 30)

    row, gate = figure(file), decided(file, GATE)

    assert row.refused is not None
    assert (row.value, row.low, row.refused.code) == (None, None, "few_labels")
    assert row.refused.needed is not None
    assert f"label about {row.refused.needed - 30} more replies" in row.refused.detail
    assert (gate.outcome, gate.reason.code) == ("inconclusive", "few_labels")
    assert gate.reason.detail == row.refused.detail
    assert corrected(file, GATE).verdict == "inconclusive"


def test_spiral_turns_are_corrected_by_behaviour() -> None:
    """The share of turns in which a behaviour is there, the mean of the judges, over prompts; missing ones count."""
    file = labels(
        {"ann": lambda item, _: int(item.split("/")[1]) % 2}, 40, ("pushback", "harmful_advice"), suite="spiral"
    )

    section = corrected(file, "spiral.corrected.pushback >= 0.01").corrected
    assert section is not None
    pushback, harm = section.figures
    measured = [c for c in report().spiral.recorded() if c.model == GOOD and c.replies]
    shares = [
        fmean(
            any(f.turn == turn and f.behaviour == "pushback" and f.evidence != "unlocated" for f in j.findings)
            for j in c.judgements
            if turn in j.turns
        )
        for c in measured
        for turn in range(6)
    ]
    assert pushback.raw == pytest.approx(fmean(shares))
    assert (pushback.labels, pushback.items, pushback.units, pushback.unit) == (40, 54, 9, "prompt")
    assert pushback.low is not None
    assert pushback.value is not None
    assert pushback.low < pushback.value
    assert harm.raw == 0
    assert decided(file, "spiral.corrected.pushback >= 0.01").outcome == "pass"


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("tempaffect.corrected.right_decision >= 0.5", "nobody was asked for it in labels.jsonl"),
        ("spiral.corrected.pushback <= 0.5", "needs labels of spiral replies"),
        ("tempaffect.corrected.useful_bounded >= baseline", "a baseline has no labels"),
    ],
)
def test_gates_that_labels_cannot_decide_are_refused(gate: str, message: str) -> None:
    """As a usage error, with what to do."""
    with pytest.raises(ConfigError, match=message):
        check_gate(parse_gate(gate), [given(labels({"ann": mostly(1.0)}))])


@pytest.mark.parametrize("kind", ["model raters", "mixed"])
def test_only_labels_of_people_decide_a_gate(kind: str) -> None:
    """Those of models, or with a model among the raters, correct numbers and decide nothing."""
    file = labels({"ann": mostly(1.0), "bot": mostly(1.0)}, kind="model")
    if kind == "mixed":
        first = file.header.raters[0].model_copy(update={"kind": "person"})
        header = file.header.model_copy(update={"raters": (first, file.header.raters[1])})
        file = LabelFile(header, file.items)

    with pytest.raises(ConfigError, match=f"only labels of people may decide a gate, and those of .* are {kind}"):
        check_gate(parse_gate(GATE), [given(file)])
    assert figure(file).value is not None


def test_labels_of_other_replies_are_refused() -> None:
    """Another run's labels, and labels without a known design, correct nothing."""
    file = labels({"ann": mostly(1.0)})
    other = LabelFile(file.header.model_copy(update={"report_hash": "0" * 64}), file.items)
    unknown = LabelFile(file.header.model_copy(update={"sampling": None}), file.items)

    for wrong, message in ((other, "not those of 'demo'"), (unknown, "not known how its items were drawn")):
        with pytest.raises(DataError, match=message):
            corrected(wrong)


@pytest.mark.parametrize("change", [{"item": "ps-01/schema/2"}, {"item": "ps-01/raw/0"}, {"model": "another"}])
def test_a_label_of_a_reply_that_the_run_does_not_have_is_refused(change: dict[str, str]) -> None:
    """Left out, it would change the number: another epoch, another mode, another model."""
    file = labels({"ann": mostly(1.0)})
    wrong = LabelFile(file.header, (file.items[0].model_copy(update=change), *file.items[1:]))

    with pytest.raises(DataError, match=r"item '.*' of '.*' is no reply of run 'demo'"):
        corrected(wrong)


def test_a_behaviour_that_the_rubric_does_not_have_is_refused() -> None:
    """A mistyped one would have no figure, and nobody would hear why."""
    file = labels({"ann": lambda *_: 1}, 40, ("pushback", "push-back"), suite="spiral")

    with pytest.raises(DataError, match=r"questions: 'push-back' is none of .*pushback"):
        corrected(file)


def test_a_run_with_labels_has_the_section() -> None:
    """As `--labels` gives it: evaluated with everything else, and the rest of the report is the same."""
    file = given(labels({"ann": mostly(1.0)}))
    other = replace(file, file=LabelFile(file.file.header.model_copy(update={"report_hash": "0"}), ()))
    run = replace(results(), spiral=None, conversations={}, gates=(parse_gate(GATE),))
    few = {key: items[:2] for key, items in run.items.items()}
    with few_draws():
        made = evaluate(replace(run, labels=(file,)))
        wrong = evaluate(replace(run, labels=(other,), items=few))

    assert made == with_labels(made, [file], run.gates, "bound")
    assert made.verdict == "pass"
    assert made.corrected == corrected(file.file).corrected
    # Not a number that could be taken for one: the part failed, and nothing is decided.
    assert (wrong.corrected, wrong.verdict) == (None, "incomplete")
    assert "labels replies of run" in wrong.failed_parts[0].detail


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Writes the section into the run's report, decides gates and exits with the verdict; again, it replaces both."""
    run = tmp_path / "run"
    run.mkdir()
    write_results(report(), run)
    path = written(tmp_path, labels({"ann": mostly(0.95)}))
    few = written(tmp_path, labels({"ann": mostly(1.0)}, 20), "few.jsonl")

    assert main(["correct", str(run), "--labels", str(few), "--gate", GATE]) == 10
    assert "more replies" in " ".join(capsys.readouterr().out.split())
    assert main(["correct", str(run), "--labels", str(path), "--gate", GATE, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    saved = load_report(run / "report.json")

    assert saved.corrected is not None
    assert shown["figures"] == [row.model_dump(mode="json") for row in saved.corrected.figures]
    assert [row.expr for row in saved.gates] == [GATE]
    assert "### Corrected by labels" in (run / "summary.md").read_text(encoding="utf-8")
    assert main(["correct", str(run), "--labels", str(path), "--gate", "spiral.corrected.pushback >= 0"]) == 4
    assert "needs labels of spiral replies" in capsys.readouterr().err
    assert main(["correct", str(run), "--labels", str(path), "--labels", str(few)]) == 4
    assert "name one file of a suite" in capsys.readouterr().err

    lacking = FailedPart(part="spiral.weights", code=PartCode.ERROR, detail="why")
    write_results(saved.model_copy(update={"failed_parts": (lacking,)}), run)
    assert main(["correct", str(run), "--labels", str(path)]) == 3
    assert "FAILED spiral.weights: error: why" in capsys.readouterr().err


def test_the_plan_of_a_pilot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`label plan` says how many labels a width or a gate takes, and how many items to draw of the run for that."""
    run = tmp_path / "run"
    run.mkdir()
    write_results(report(), run)
    pilot = str(written(tmp_path, labels({"ann": mostly(0.9)}, 60)))
    command = ["label", "plan", str(run), "--labels", pilot]

    assert main([*command, "--half-width", "0.12", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["metric"], row["plan"]["labels"]) == ("useful_bounded", 60)
    # Of 100 valid replies, all of the run's population.
    assert 15 < row["plan"]["needed"] == row["of_run"] <= row["plan"]["items"]
    assert main([*command, "--half-width", "0.01"]) == 0
    assert "not by labels: all " in capsys.readouterr().out
    assert main([*command, "--gate", "tempaffect.corrected.useful_bounded >= 0.4"]) == 0
    assert "to decide tempaffect.corrected.useful_bounded >= 0.4" in capsys.readouterr().out
    assert main([*command, "--gate", "tempaffect[raw].corrected.useful_bounded >= 0.4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    for wrong, message in (
        ([], "either --half-width 0.05 or --gate"),
        (["--gate", "tempaffect.corrected.right_decision >= 0.4"], "no metric 'corrected.right_decision'"),
        (["--half-width", "7"], "no number between 0 and 0.5"),
    ):
        assert main([*command, *wrong]) == 4
        assert message in capsys.readouterr().err
