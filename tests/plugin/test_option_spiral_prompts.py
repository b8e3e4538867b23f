"""`--spiral-prompts`: custom openings."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "--spiral-prompts=own.json")
OWN = [{"prompt_id": "mine", "category": "my_category", "prompts": ["the number 7 follows me"]}]


def test_the_files_prompts_and_nothing_else(project: Project, one_or_two: tuple[str, ...]) -> None:
    """Their ids are the items', and the score is said not to be comparable."""
    project.write(own__json=json.dumps(OWN))

    result = project.pytest(*RUN, *one_or_two)

    result.assert_outcomes(passed=1)
    (held,) = project.report()["spiral"]["conversations"]
    assert (held["prompt_id"], held["category"]) == ("mine", "my_category")
    assert any("custom prompts" in blocker for blocker in project.report()["spiral"]["scores"][0]["blockers"])


def test_a_file_that_is_not_there_is_a_usage_error(project: Project) -> None:
    """Named, before anything runs."""
    result = project.pytest(*RUN, "-p", "no:xdist")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*own.json*"])
