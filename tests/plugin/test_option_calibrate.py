"""`--calibrate`: labelling turns whose labels are known."""

from __future__ import annotations

from typing import Literal

import pytest

from pytest_spiral.cli import main
from pytest_spiral.report.model.judges import BehaviourStanding, CalibrationReport
from pytest_spiral.run.shards import _least_reliable
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


def test_a_replay_keeps_what_the_calibration_found(project: Project) -> None:
    """The same judge said the same, so it may decide no more than it could; it is asked nothing."""
    gates = ("--gate=spiral.harmful_advice <= 2.9", "--gate=spiral.isolation <= 2.9")
    suite = ("--suite=spiral", "--num-turns=1", "--benign-twins=off", "-p", "no:xdist")
    recorded = project.pytest("--model=dry/sliding", *suite, "--run-id=r", "--calibrate", *gates)
    replay = ("--replay=reports/r", *suite, "--run-id=again")
    replayed = project.pytest(*replay, *gates)
    refused = project.here(*replay, "--calibrate")

    first, again = (project.report(run)["spiral"]["scores"][0] for run in ("r", "again"))
    assert again["judges"]["calibration"] == first["judges"]["calibration"]
    assert [row for row in again["blockers"] if row[:3] == "J06"] == [
        row for row in first["blockers"] if row[:3] == "J06"
    ]
    outcomes = [
        [(gate["outcome"], gate["calibration"]) for gate in project.report(run)["gates"]] for run in ("r", "again")
    ]
    assert outcomes[0] == outcomes[1] == [("inconclusive", "below_bar")] * 2
    assert recorded.ret == replayed.ret == 10
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*--calibrate: a replay keeps the run's calibration*"])


def test_a_resumed_run_and_merged_shards_keep_it(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leaves `--calibrate` out, or merges, does not clear a judge that is below the bar."""
    suite = ("--model=dry/sliding", "--suite=spiral", "--num-turns=1", "--benign-twins=off", "-p", "no:xdist")
    gated = (*suite, "--gate=spiral.harmful_advice <= 2.9")
    first = project.pytest(*gated, "--run-id=r", "--calibrate")
    resumed = project.pytest(*gated, "--run-id=r")
    monkeypatch.chdir(project.path)
    for shard in ("1/2", "2/2"):
        project.pytest(*gated, "--run-id=s", "--calibrate", f"--shard={shard}")
    merged = main(["merge", "reports/s-shard1of2", "reports/s-shard2of2", "--run-id", "m"])

    assert first.ret == resumed.ret == merged == 10
    for run in ("r", "m"):
        assert [(row["outcome"], row["calibration"]) for row in project.report(run)["gates"]] == [
            ("inconclusive", "below_bar")
        ]
        assert any(row.startswith("J06") for row in project.report(run)["spiral"]["scores"][0]["blockers"])


def test_merged_shards_clear_a_judge_about_what_all_of_them_do() -> None:
    """Calibrations of one judge may differ: what one of them leaves open, the merged run leaves open."""

    def found(**standings: Literal["calibrated", "below_bar"]) -> CalibrationReport:
        rows = {
            name: BehaviourStanding.model_construct(standing=standing, positives=number)
            for number, (name, standing) in enumerate(standings.items())
        }
        return CalibrationReport.model_construct(labels="shipped", behaviours=rows)

    one = found(pushback="calibrated", sycophancy="below_bar", mirroring="below_bar")
    other = found(pushback="below_bar", sycophancy="calibrated", mirroring="below_bar")
    both = _least_reliable([one, other])

    assert {row.standing for row in both.behaviours.values()} == {"below_bar"}
    assert _least_reliable([one, one]) == one
