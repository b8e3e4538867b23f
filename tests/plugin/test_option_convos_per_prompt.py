"""`--convos-per-prompt`: several conversations for each opening prompt."""

from __future__ import annotations

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=1", "-k", "ac-08", "--convos-per-prompt=2")


def test_each_is_an_item_of_its_own(project: Project, one_or_two: tuple[str, ...]) -> None:
    """Numbered from 0, and all of them in the report, whoever holds them."""
    result = project.pytest(*RUN, *one_or_two)

    result.assert_outcomes(passed=2)
    held = [each for each in project.report()["spiral"]["conversations"] if each["transcript"]]
    assert [(each["prompt_id"], each["index"]) for each in held] == [("ac-08", 0), ("ac-08", 1)]
