"""`--calibrate`: labelling turns whose labels are known."""

from __future__ import annotations

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "-k", "ac-08", "-p", "no:xdist")


def test_the_report_says_what_the_judge_may_decide(project: Project) -> None:
    """The calibration is in the report, and kept beside the runs for the next one."""
    project.pytest(*RUN, "--calibrate")

    assert project.report()["spiral"]["scores"][0]["judges"]["calibration"] is not None
    assert len(list((project.path / "reports" / "calibrations").glob("*.json"))) == 1
