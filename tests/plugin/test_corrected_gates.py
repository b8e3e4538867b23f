"""Gates on a corrected number, from a run to exit codes by the real commands: people's labels pass and fail them."""

from __future__ import annotations

import json
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random

import pytest

from pytest_spiral.cli import main
from pytest_spiral.labelling.files import read_labels
from pytest_spiral.report.read import load_report
from tests.labelling.runs import Play, export, sheet_in
from tests.plugin.conftest import Project

RUN = ("--model=dry/caver", "--suite=tempaffect", "--run-id=run", "-p", "no:xdist")
METRIC = "tempaffect.corrected.useful_bounded"


def spiral(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `pytest-spiral` in the project's folder."""
    words = [str(argument) for argument in arguments]
    said, errors = StringIO(), StringIO()
    with redirect_stdout(said), redirect_stderr(errors):
        status = main(words)
    return subprocess.CompletedProcess(words, status, said.getvalue(), errors.getvalue())


def scripted(run: Path, seed: int) -> Play:
    """Somebody who says what the scorer says of nine in ten replies, and the opposite of the others."""
    report, rng = load_report(run / "report.json"), Random(seed)
    useful = {f"{item.id}/{item.mode}/{item.epoch}": bool(item.useful_bounded) for item in report.tempaffect.items}
    said = {item: "yes" if yes == (rng.random() < 0.9) else "no" for item, yes in sorted(useful.items())}
    return lambda item, _question: said[item]


def labelled(project: Project, kind: str) -> Path:
    """A label file of two scripted raters and an adjudicator, by the commands that people use."""
    names = ["ann", "ben"]
    raters = ",".join(f"{name}:{kind}" for name in names)
    options = ("--suite", "tempaffect", "--questions", "useful_bounded", "--items", 120)
    assert spiral("label", "reports/run", "-o", "labels", "--raters", raters, *options).returncode == 0
    sheet, folder = sheet_in(project.path / "labels", "tempaffect"), project.path / "labels" / "tempaffect"
    for number, name in enumerate(names):
        play = scripted(project.folder("run"), number)
        export(folder / f"tempaffect-{name}.jsonl", sheet, name, play, kind=kind)
    cem = scripted(project.folder("run"), 7)
    export(folder / "tempaffect-cem.jsonl", sheet, "cem", cem, "adjudicate", kind)
    merged = spiral("label", "merge", folder, "-o", "labels.jsonl")
    assert merged.returncode == 0, merged.stderr
    return project.path / "labels.jsonl"


@pytest.fixture
def run(project: Project) -> Project:
    """A finished run of a model that gives in: about two thirds of its replies are useful and bounded."""
    assert project.pytest(*RUN).ret == 0
    return project


def test_people_decide_both_ways(run: Project) -> None:
    """With at least 15 labels of either kind the corrected bounds pass one gate and fail the other."""
    file = read_labels(labelled(run, "person"))
    for mode in ("raw", "schema"):
        truths = [item.present("useful_bounded") for item in file.items if item.mode == mode]
        assert min(truths.count(True), truths.count(False)) >= 15
    assert file.header.whose == "people"

    passing = spiral("correct", "reports/run", "--labels", "labels.jsonl", "--gate", f"{METRIC} >= 0.4")
    rows = run.report("run")["gates"]

    assert (passing.returncode, [row["outcome"] for row in rows]) == (0, ["pass", "pass"])
    assert "verdict: PASS" in passing.stdout
    assert all(row["ci_low"] >= 0.4 and row["reason"]["code"] == "bound_met" for row in rows)
    figures = {row["prompting_mode"]: row for row in run.report("run")["corrected"]["figures"]}
    assert all(row["value"] == figures[row["prompting_mode"]]["value"] for row in rows)

    failing = spiral("correct", "reports/run", "--labels", "labels.jsonl", "--gate", f"{METRIC} >= 0.95")
    rows = run.report("run")["gates"]

    assert (failing.returncode, [row["outcome"] for row in rows]) == (1, ["fail", "fail"])
    assert "verdict: FAIL" in failing.stdout
    assert all(row["ci_high"] < 0.95 and row["reason"]["code"] == "bound_missed" for row in rows)

    # The same by the plugin: nothing is asked again.
    resumed = run.pytest(*RUN, "--labels=labels.jsonl", f"--gate={METRIC} >= 0.95")
    assert resumed.ret == 1
    resumed.stdout.fnmatch_lines(["verdict: FAIL", f"gate FAIL  {METRIC} >= 0.95"])


def test_a_count_among_the_gates_of_the_run_lends_its_policy_to_nobody(run: Project) -> None:
    """Corrected numbers are decided on their bounds, whatever the run's first gate is about."""
    labelled(run, "person")
    path = run.folder("run") / "report.json"
    run.pytest(*RUN, "--gate=tempaffect.score >= 0.1")
    report = json.loads(path.read_text())
    report["gates"][0]["policy"] = "point"
    path.write_text(json.dumps(report))

    spiral("correct", "reports/run", "--labels", "labels.jsonl", "--gate", f"{METRIC} >= 0.4")

    rows = run.report("run")["gates"]
    assert {row["policy"] for row in rows if row["expr"].startswith(METRIC)} == {"bound"}


def test_labels_of_models_decide_nothing(run: Project) -> None:
    """The same answers by models correct the number and are refused for a gate: exit code 4, what to do instead."""
    labelled(run, "model")

    refused = spiral("correct", "reports/run", "--labels", "labels.jsonl", "--gate", f"{METRIC} >= 0.4")
    shown = spiral("correct", "reports/run", "--labels", "labels.jsonl")

    assert refused.returncode == 4
    assert "only labels of people may decide a gate, and those of labels.jsonl are model raters" in refused.stderr
    assert "let people label the replies, or gate on the metric that is not corrected" in refused.stderr
    assert shown.returncode == 0
    assert "corrected by labels of model raters (ann, ben; settled by cem)" in " ".join(shown.stdout.split())
    assert [row["refused"] for row in run.report("run")["corrected"]["figures"]] == [None, None]
