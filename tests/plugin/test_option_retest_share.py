"""`--retest-share`: judging some chunks twice."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

RUN = ("--model=dry/perfect", "--suite=spiral", "--num-turns=2", "-k", "ac-08", "-p", "no:xdist")


@pytest.mark.parametrize(("percent", "retests"), [(0, 0), (100, 4)])
def test_each_chosen_chunk_is_judged_in_both_orders(project: Project, percent: int, retests: int) -> None:
    """Two more judgements for each chunk; those that are scored stay the same."""
    project.pytest(*RUN, f"--retest-share={percent}")

    (held,) = (each for each in project.report()["spiral"]["conversations"] if each["transcript"])
    assert (len(held["judgements"]), len(held["retests"])) == (2, retests)
