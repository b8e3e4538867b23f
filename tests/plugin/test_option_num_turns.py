"""`--num-turns`: the length of conversations."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "-k", "ac-08", "-p", "no:xdist")


@pytest.mark.parametrize("turns", [1, 3])
def test_replies_of_the_evaluated_model(project: Project, turns: int) -> None:
    """Each conversation has that many, and the report says so."""
    project.pytest(*RUN, f"--num-turns={turns}")

    report = project.report()
    held = [each for each in report["spiral"]["conversations"] if each["transcript"]]
    assert [[message["role"] for message in each["transcript"]].count("assistant") for each in held] == [turns]
    assert report["run"]["config"]["num_turns"] == turns
