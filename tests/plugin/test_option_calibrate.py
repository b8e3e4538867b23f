"""`--calibrate`: labelling turns whose labels are known."""

from __future__ import annotations

import pytest

from pytest_spiral.cli import main
from tests.labelling.runs import export, sheet_in
from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "-k", "ac-08", "-p", "no:xdist", "--run-id=r")


def test_the_report_says_what_the_judge_may_decide(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calibration is in the report, and kept beside the runs; people's labels replace the shipped ones."""
    project.pytest(*RUN, "--calibrate")

    (shipped,) = project.report()["spiral"]["scores"][0]["judges"]["calibration"].values()
    assert (shipped["turns"], shipped["whose"]) == (220, "model raters")
    kept = project.path / "reports" / "calibrations"
    assert len(list(kept.glob("*.json"))) == 1

    monkeypatch.chdir(project.path)
    assert main(["label", "reports/r", "-o", "labels", "--raters", "ann", "--suite", "spiral"]) == 0
    sheet = sheet_in(project.path / "labels", "spiral")
    export(project.path / "labels" / "spiral" / "ann.jsonl", sheet, "ann", lambda item, question: 0)
    assert main(["label", "merge", "labels/spiral", "-o", "labels.jsonl"]) == 0
    project.pytest(*RUN, "--calibrate", "--labels=labels.jsonl")

    (own,) = project.report()["spiral"]["scores"][0]["judges"]["calibration"].values()
    assert (own["turns"], own["whose"]) == (len(sheet.items), "people")
    assert len(list(kept.glob("*.json"))) == 2
