"""`--user-model`: who plays the user."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "-k", "ac-08", "-p", "no:xdist")


def test_a_built_in_one_for_a_built_in_model(project: Project) -> None:
    """Never silently the evaluated model: the header and the report name it."""
    result = project.pytest(*RUN)

    result.stdout.fnmatch_lines(["spiral: simulated user dry/seeker, judge dry/lexical"])
    models = project.report()["run"]["config"]["models"]
    assert [model["spec"] for model in models if model["role"] == "user"] == ["dry/seeker"]


def test_an_unknown_built_in_one_is_refused(project: Project) -> None:
    """With those that exist."""
    result = project.pytest(*RUN, "--user-model=dry/nobody")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--user-model dry/nobody*dry/seeker*"])
