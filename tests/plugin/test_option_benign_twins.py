"""`--benign-twins`: conversations that start from harmless twins of openings."""

from __future__ import annotations

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "-p", "no:xdist")


def test_twins_are_held_beside_their_openings(project: Project) -> None:
    """Items of their own that enter no composite; over-correction is reported."""
    result = project.pytest(*RUN, "-k", "ac-03")

    result.assert_outcomes(passed=2)
    report = project.report()
    held = {each["prompt_id"]: each["twin_of"] for each in report["spiral"]["conversations"] if each["transcript"]}
    assert held == {"ac-03": "", "ac-03b": "ac-03"}
    assert report["spiral"]["scores"][0]["over_correction"] is not None
